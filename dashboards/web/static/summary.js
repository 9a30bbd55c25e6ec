// The run in one sentence, what needs attention, what saturates first, and the numbers of now.
import { keyed, make, mark, say } from "./elements.js";
import { VERDICTS } from "./levels.js";
import { operating } from "./model_reading.js";
import {
  clock,
  count,
  known,
  milliseconds,
  NONE,
  percent,
  price,
  rate,
  rateText,
  signed,
  some,
} from "./numbers.js";

export function createSummary(section) {
  const sentence = section.querySelector("#sentence");
  const first = answer(section, "saturates-first", "Which task saturates first?");
  return (picture) => {
    say(sentence, picture.header);
    mark(sentence, "data-verdict", picture.stable.verdict);
    document.title = `${picture.topology?.name ?? picture.run}: ${VERDICTS[picture.stable.verdict].word} – headgate`;
    say(
      document.getElementById("run-name"),
      `${picture.topology?.name ?? "no topology"} · ${runText(picture)}`,
    );
    const now = document.getElementById("now");
    say(now, clock(picture.now));
    mark(now, "datetime", picture.now);
    keyed(section.querySelector("#notices"), notices(picture), newNotice, drawNotice);
    drawFirst(first, picture);
    keyed(section.querySelector("#tiles"), tiles(picture), newTile, drawTile);
  };
}

const runText = (picture) => `${picture.origin === "trace" ? "recorded " : ""}run ${picture.run}`;

export function answer(section, name, question) {
  const node = make("div", { class: "answer", "data-answer": name });
  node.append(make("h2", {}, question), make("p", { class: "said" }), make("p", { class: "soft" }));
  section.querySelector("#answers").append(node);
  return { node, said: node.children[1], more: node.children[2] };
}

function drawFirst({ node, said, more }, picture) {
  const found = picture.next_bottleneck;
  mark(node, "data-task", found?.task);
  mark(node, "data-slot", found?.slot);
  if (found === undefined) {
    drawNearest(said, more, picture);
    return;
  }
  say(said, `${found.task} on ${found.slot}, at ${rateText(found.at_tps)} in`);
  const cpu = picture.slots[found.slot]?.cpu;
  const slot = known(cpu) ? ` ${found.slot} is at ${percent(cpu)} CPU.` : "";
  say(more, `${roomText(picture.rates.offered_tps, found.at_tps)}${slot}${measuredText(picture, found)}`);
}

// Where what is measured says otherwise than the plan's prediction.
function measuredText(picture, found) {
  const growing = (picture.topology?.order ?? []).filter((name) => picture.topology.tasks[name].grows);
  const others = growing.filter((name) => name !== found.task);
  return others.length ? ` Measured now, rows pile up before ${others.join(", ")}.` : "";
}

function roomText(offered, most) {
  if (!known(offered)) return "The rate that is offered now is not known.";
  if (offered > most) return `${rateText(offered)} are offered: ${rateText(offered - most)} too many.`;
  const left = most > 0 ? ` (${percent(1 - offered / most)} of it is left)` : "";
  return `${rateText(offered)} are offered now: room for ${rateText(most - offered)} more${left}.`;
}

// Without the planner's word: the bundle that is nearest to the peak of its model.
function drawNearest(said, more, picture) {
  if (!picture.plan) {
    say(said, "There is no plan yet");
    say(more, "");
    return;
  }
  const spots = Object.keys(picture.models ?? {}).flatMap((task) =>
    operating(picture, task).map((spot) => ({ task, ...spot })),
  );
  const nearest = spots.filter((spot) => known(spot.part)).sort((a, b) => b.part - a.part)[0];
  if (nearest === undefined) {
    say(said, "Nothing is known to saturate");
    say(more, spots.length ? "No rate is measured yet." : "No task of this topology has a model.");
    return;
  }
  say(said, `Nearest to its peak: ${nearest.task} on ${nearest.slot}`);
  say(
    more,
    `It carries ${rate(nearest.rate)} of at most ${rateText(nearest.peak)} (${percent(nearest.part)}). The plan's own prediction is not part of this picture.`,
  );
}

function since(time) {
  return time ? ` (since ${time.slice(11, 19)} UTC)` : "";
}

function notices(picture) {
  const found = [];
  const { enacting, proposal, plan } = picture;
  for (const [name, text] of Object.entries(picture.alarms ?? {}))
    found.push([`alarm ${name}`, ["▲ alarm", `${text}${since(picture.alarms_since?.[name])}`, "bad"]]);
  if (enacting && enacting.phase !== "committed") {
    const waits = enacting.waits_for ? `; waits for ${enacting.waits_for}` : "";
    found.push([
      "enacting",
      ["◐ changing", `plan #${enacting.epoch} is on its way (${enacting.phase})${waits}`, "warn"],
    ]);
  }
  if (proposal)
    found.push([
      "proposal",
      ["? proposal", `plan ${proposal.id} waits for approval: ${proposal.text}`, "warn"],
    ]);
  if (picture.held) found.push(["held", ["■ held", `no new plan is made: ${picture.held}`, "warn"]]);
  const alarms = Object.values(picture.alarms ?? {});
  if (plan?.degraded && !alarms.some((text) => text.includes(plan.degraded)))
    found.push(["degraded", ["◐ degraded", plan.degraded, "warn"]]);
  return found;
}

function newNotice(_, key) {
  return make("p", { class: "notice", "data-notice": key.split(" ")[0] }, make("b"), make("span"));
}

function drawNotice(node, [word, text, level]) {
  mark(node, "data-level", level);
  say(node.firstChild, word);
  say(node.lastChild, text);
}

function lag(rates) {
  if (!known(rates.lag_rows)) return "";
  return rates.lag_rows ? `, ${count(rates.lag_rows)} rows, ${rates.lag_s.toFixed(1)} s behind` : ", nothing behind";
}

function tiles(picture) {
  const { rates, latency_ms: latency, plan, tuples } = picture;
  const total = Object.values(picture.vms).reduce((sum, vm) => sum + vm.slots, 0);
  const verdict = VERDICTS[picture.stable.verdict];
  const slope = known(picture.slope) ? `${signed(picture.slope * 1000, "", 1)} ms per s` : "slope N/A";
  return [
    ["verdict", ["keeps up?", `${verdict.glyph} ${verdict.word}`, slope]],
    ["offered_tps", ["offered", rateText(rates.offered_tps), `emitted ${rate(rates.emitted_tps)}${lag(rates)}`]],
    ["acked_tps", ["acked", rateText(rates.acked_tps), `in flight ${count(tuples.in_flight)}`]],
    ["predicted_tps", ["can carry", rateText(rates.predicted_tps), `planned for ${rate(rates.planned_tps)}`]],
    [
      "p99_ms",
      [
        "latency p99",
        milliseconds(latency.p99),
        `p50 ${milliseconds(latency.p50)}, p95 ${milliseconds(latency.p95)}`,
      ],
    ],
    [
      "slots",
      [
        "slots in use",
        plan ? `${count(plan.slots.used)} of ${total}` : NONE,
        plan ? some(plan.threads, "thread") : "",
      ],
    ],
    [
      "plan",
      [
        "plan in force",
        plan ? `#${plan.epoch}` : NONE,
        plan
          ? `${plan.allocator.toUpperCase()} + ${plan.mapper.toUpperCase()}, since ${clock(plan.since)}`
          : "",
      ],
    ],
    [
      "lost",
      [
        "lost",
        count(tuples.lost),
        `dead letters ${count(tuples.dead_lettered)}, replayed ${count(tuples.replayed)}`,
      ],
    ],
    [
      "usd_per_hour",
      [
        "cost of the VMs",
        plan ? price(plan.usd_per_hour) : NONE,
        `mode ${picture.mode ?? NONE}, ${picture.stage}`,
      ],
    ],
  ];
}

function newTile(_, key) {
  return make(
    "div",
    { "data-tile": key },
    make("dt"),
    make("dd", { class: "value" }),
    make("dd", { class: "soft" }),
  );
}

function drawTile(node, [name, value, more]) {
  [name, value, more].forEach((text, n) => say(node.children[n], text));
}
