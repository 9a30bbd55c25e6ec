// What another input rate would need, by the real planner: slots, VMs, cost, LSA beside MBA, and what a slot more buys.
import { ask } from "../core/server.js";
import { make, mark, say, scrolled, textTable } from "../core/elements.js";
import { count, known, milliseconds, NONE, percent, price, rate, rateText, some } from "../core/numbers.js";

const SETTLE_MS = 250; // of the slider, before it is asked
const AGAIN_MS = 5000; // after the planner did not answer
const STEPS = 200;
const EVERY = [
  "planner",
  "slots",
  "cost",
  "carries, weighted",
  "carries, shuffled",
  "rows that leave a slot",
  "… a VM",
  "moves",
  "time to plan",
];
const FAR = 2.5; // × what the plan in force can carry is the slider's end

export function createWhatIf(section) {
  const slider = make("input", { type: "range", id: "whatif-slider", min: 1, max: STEPS, value: 1 });
  const exact = make("input", {
    type: "number",
    id: "whatif-rate",
    min: 0.1,
    step: "any",
    inputmode: "decimal",
  });
  const said = make("p", { class: "said", role: "status" });
  const needs = textTable("planner", ["planner", "slots", "VMs", "cost", "can carry", "what limits it"]);
  const one = oneMoreSlot();
  const every = make("button", { type: "button", id: "whatif-compare" }, "Compare all schedulers");
  const others = textTable("pair", EVERY, { id: "whatif-every", hidden: true });
  section
    .querySelector(".view")
    .append(
      make(
        "div",
        { class: "asking" },
        make("label", { for: "whatif-slider" }, "Input rate"),
        slider,
        make("label", { for: "whatif-rate", class: "small" }, "rows/s"),
        exact,
      ),
      said,
      one.node,
      scrolled("What it takes", needs.node),
      every,
      scrolled("Every scheduler", others.node),
    );
  const own = {
    section,
    slider,
    exact,
    said,
    one,
    needs,
    every,
    others,
    scale: 0,
    timer: null,
    turn: 0,
    asked: "",
    rests: 0, // until then it is not asked again
  };
  slider.addEventListener("input", () => choose(own, (slider.value / STEPS) * own.scale, true));
  exact.addEventListener("input", () => choose(own, Number(exact.value), false));
  every.addEventListener("click", () => compareAll(own));
  return (picture) => follow(own, picture);
}

function oneMoreSlot() {
  const [said, more] = [make("b"), make("span", { class: "soft" })];
  const question = "What would one more slot buy? ";
  return { node: make("p", { "data-answer": "one-more-slot" }, question, said, " ", more), said, more };
}

// Takes the scale from the plan in force, and asks about it once per plan.
function follow(own, picture) {
  const plan = picture.plan;
  const about = `${picture.boot} ${plan?.epoch} ${Object.keys(picture.vms).join()}`;
  if (!plan || about === own.asked || performance.now() < own.rests) return;
  own.asked = about;
  if (picture.origin === "trace") {
    refuse(own, "A recorded run has no planner to ask; over a running topology this shows it.");
    return;
  }
  own.scale = scaleOf(FAR * Math.max(plan.predicted_tps, plan.rate_tps));
  if (own.exact.value === "") choose(own, plan.rate_tps, true);
  else choose(own, Number(own.exact.value), false);
}

function scaleOf(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return Math.ceil(value / unit) * unit;
}

function choose(own, rateTps, exactToo) {
  if (!(rateTps > 0) || !Number.isFinite(rateTps)) return;
  const tidy = Number(rateTps.toPrecision(3));
  if (exactToo) own.exact.value = tidy;
  own.slider.value = Math.round((tidy / own.scale) * STEPS);
  mark(own.slider, "aria-valuetext", `${rate(tidy)} rows per second`);
  own.rate = tidy;
  clearTimeout(own.timer);
  own.timer = setTimeout(() => inquire(own, tidy), SETTLE_MS);
}

async function inquire(own, rateTps) {
  const turn = (own.turn += 1);
  mark(own.section, "aria-busy", "true");
  try {
    const found = await ask("/api/whatif", { rates: [rateTps], full: true });
    if (turn === own.turn) tell(own, found);
  } catch (error) {
    if (turn === own.turn) say(own.said, `No answer: ${error.message}.`);
    own.asked = "";
    own.rests = performance.now() + AGAIN_MS;
  }
  if (turn === own.turn) mark(own.section, "aria-busy", null);
}

function tell(own, found) {
  const row = found.rows[0];
  mark(own.section, "data-rate", row.rate_tps);
  mark(own.section, "data-slots", row.slots?.used);
  say(own.said, sentence(row));
  tellOneMore(own.one, row);
  const pair = `${found.allocator}+${found.mapper}`;
  const rows = [["this", needsOf({ ...row, pair }, row.slots?.used, row.rate_tps)]];
  if (row.baseline) rows.push(["lsa", needsOf(row.baseline, row.baseline.slots_used, row.rate_tps)]);
  own.needs.fill(rows);
}

function sentence(row) {
  if (row.slots === null) return `No plan carries ${rateText(row.rate_tps)}: ${row.reason}.`;
  const fits = row.fits ? "" : ", more VMs than there are here";
  const first = row.limited_by ? `; then ${row.limited_by} on ${row.limited_by_slot} saturates first` : "";
  const { used } = row.slots;
  const other = row.baseline;
  const saved =
    known(other?.slots_used) && other.slots_used > used && other.predicted_tps >= row.rate_tps * 0.999
      ? ` ${other.pair.toUpperCase()} would take ${some(other.slots_used - used, "slot")} more.`
      : "";
  const soon = row.latency ? `; 95 of 100 rows take up to ${milliseconds(row.latency.p95_ms)}` : "";
  return `${rateText(row.rate_tps)} need ${some(used, "slot")} on ${some(row.vms.split(",").length, "VM")}${fits}, ${price(row.usd_per_hour)}${soon}${first}.${saved}`;
}

function tellOneMore({ node, said, more }, row) {
  const { same_slots: same, more_slots: next } = row;
  const buys = next && next.carried_tps - same.carried_tps;
  mark(node, "data-buys", next && Number(buys.toPrecision(4)));
  if (!next) {
    say(said, "Not known");
    say(more, row.reason ?? "The planner finds no next step.");
    return;
  }
  const slots = next.slots === same.slots + 1 ? "" : `, with ${next.slots - same.slots} slots`;
  say(said, `${rateText(buys)} more${slots}`);
  say(
    more,
    `Planned again, ${some(same.slots, "slot")} carry at most ${rateText(same.carried_tps)}, and ${next.slots} carry ${rateText(next.carried_tps)}.`,
  );
}

function refuse(own, text) {
  for (const input of [own.slider, own.exact, own.every]) input.disabled = true;
  say(own.said, text);
  own.needs.node.hidden = true;
  say(own.one.said, NONE);
  say(own.one.more, text);
}

// Every scheduler at the rate that is chosen, when asked for: it is a plan each.
async function compareAll(own) {
  const asked = own.rate;
  if (!asked) return;
  own.every.disabled = true;
  say(own.every, `Planning for ${rateText(asked)} by every scheduler…`);
  try {
    const found = await ask("/api/whatif", { rates: [asked], compare: true });
    own.others.node.hidden = false;
    own.others.fill(
      found.rows.map((row) => [row.pair, textsOf(row), { title: row.reason ?? row.gap_words }]),
    );
    mark(own.section, "data-compared", asked);
    say(own.every, `Compare all schedulers (below: at ${rateText(asked)})`);
  } catch (error) {
    say(own.every, `No answer: ${error.message}. Ask again`);
  }
  own.every.disabled = false;
}

const pairText = (row) => (row.pair ?? "").toUpperCase().replace("+", " + ");
const costText = (row) => (known(row.usd_per_hour) ? price(row.usd_per_hour) : NONE);

function textsOf(row) {
  const part = (value) => (known(value) && row.rows_tps > 0 ? percent(value / row.rows_tps) : NONE);
  return [
    pairText(row),
    count(row.slots?.used),
    costText(row),
    rateText(row.weighted_tps),
    rateText(row.shuffle_tps),
    part(row.between_slots_tps),
    part(row.between_vms_tps),
    count(row.moves),
    milliseconds(1000 * row.planned_s),
  ];
}

function needsOf(row, used, asked) {
  const short = known(row.predicted_tps) && row.predicted_tps < asked * 0.999;
  const first = short
    ? `▲ carries ${rate(row.predicted_tps)} of the ${rate(asked)} asked for`
    : row.limited_by
      ? `${row.limited_by} on ${row.limited_by_slot}`
      : (row.reason ?? "");
  return [pairText(row), count(used), vmsText(row), costText(row), rateText(row.predicted_tps), first];
}

// `5: 4, 4, 4, 4, 2 slots`, or N/A.
function vmsText(row) {
  if (!row.vms) return NONE;
  const sizes = row.vms.split(",");
  const alike = sizes.every((size) => size === sizes[0]);
  return alike ? `${sizes.length} × ${sizes[0]} slots` : `${sizes.length} of ${sizes.join(", ")} slots`;
}
