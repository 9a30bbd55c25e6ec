// Health in one sentence with its reason, and below it whatever else needs attention.
import { keyed, make, mark, say } from "../core/elements.js";
import { VERDICTS } from "../core/levels.js";
import { clock, count, known, milliseconds, rate, rateText } from "../core/numbers.js";

export function createHealth(section) {
  const sentence = section.querySelector("#sentence");
  const [word, reason] = sentence.children;
  return (picture) => {
    const [first, ...others] = findings(picture);
    say(word, first.word);
    say(reason, first.text);
    mark(sentence, "data-verdict", picture.stable.verdict);
    mark(sentence, "data-state", first.level);
    keyed(
      section.querySelector("#notices"),
      others.map((each) => [each.name, each]),
      newNotice,
      drawNotice,
    );
    drawTop(picture, first.word);
  };
}

function drawTop(picture, word) {
  const name = picture.topology?.name ?? "no topology";
  document.title = `${word} – ${name} – headgate`;
  say(
    document.getElementById("run-name"),
    `${name} · ${picture.origin === "trace" ? "recorded " : ""}run ${picture.run}`,
  );
  const now = document.getElementById("now");
  say(now, clock(picture.now));
  mark(now, "datetime", picture.now);
}

// [{name, level, word, text}], what matters most first. Levels: `act` someone must act, `watch` the controller is
// on it, `good`, `none` nothing is known. Pure.
export function findings(picture) {
  const { alarms = {}, alarms_since: since = {}, proposal, enacting, held, plan } = picture;
  const found = Object.entries(alarms).map(([name, text]) => ({
    name: `alarm ${name}`,
    level: "act",
    word: "▲ Act:",
    text: `${text}${since[name] ? ` (since ${clock(since[name])} UTC)` : ""}.`,
  }));
  if (proposal) {
    const text = `plan ${proposal.id} waits for approval: ${proposal.text}.`;
    found.push({ name: "proposal", level: "act", word: "? Decide:", text });
  }
  found.push(verdictOf(picture));
  if (enacting && enacting.phase !== "committed") {
    const waits = enacting.waits_for ? `; it waits for ${enacting.waits_for}` : "";
    const text = `plan #${enacting.epoch} is on its way (${enacting.phase})${waits}.`;
    found.push({ name: "enacting", level: "watch", word: "◐ Changing:", text });
  }
  const unknown = Object.entries(picture.topology?.tasks ?? {}).filter(([, task]) => task.unmeasured);
  if (unknown.length > 0) {
    const text = `what rows cost is not known yet of ${unknown.map(([name]) => name).join(", ")}.`;
    found.push({ name: "learning", level: "watch", word: "◐ Learning:", text });
  }
  if (held) found.push({ name: "held", level: "watch", word: "■ No new plans:", text: `${held}.` });
  if (plan?.degraded && !Object.values(alarms).some((text) => text.includes(plan.degraded)))
    found.push({ name: "degraded", level: "watch", word: "◐ Degraded:", text: `${plan.degraded}.` });
  return found;
}

function verdictOf(picture) {
  const { plan, stable, stage, header } = picture;
  const finding = (level, word, text) => ({ name: "verdict", level, word, text: `${text}.` });
  if (stage === "over") return finding("none", "■ Over:", totals(picture));
  if (!plan) return finding("none", "? No plan yet:", header || stage);
  const { glyph, word } = VERDICTS[stable.verdict];
  const lost = picture.tuples.lost > 0 ? `; ${count(picture.tuples.lost)} rows are lost` : "";
  if (stable.verdict === "stable") {
    const latency = stable.text ? behind(stable) : "latency is steady";
    return finding(stable.text ? "watch" : "good", `${glyph} ${word}:`, `${latency}, ${load(picture)}${lost}`);
  }
  if (stable.verdict === "unknown") {
    const why = stable.text ?? "too little has been measured under this plan";
    return finding("none", `${glyph} ${word}:`, `${why}; ${load(picture)}${lost}`);
  }
  if (stable.verdict === "catching_up") {
    return finding("watch", `${glyph} ${word}:`, `${behind(stable)}; ${load(picture)}${lost}`);
  }
  const works = isWorkedOn(picture);
  return finding(
    works ? "watch" : "act",
    `${glyph} ${word}:`,
    `${trouble(picture)}${lost}; ${remedy(picture)}`,
  );
}

const isWorkedOn = ({ mode, held, enacting, plan }) =>
  Boolean(enacting) || ((mode ?? "auto") === "auto" && !held && !plan.degraded);

// `212 of at most 243 rows/s, 99 % of rows within 88 ms`.
function load({ rates, latency_ms: latency }) {
  const { offered_tps: offered, predicted_tps: most } = rates;
  const parts = [];
  if (known(offered) && known(most)) {
    parts.push(
      offered > most
        ? `${rateText(offered)} are offered, ${rateText(offered - most)} more than it can carry`
        : `${rate(offered)} of at most ${rateText(most)}`,
    );
  } else if (known(offered)) parts.push(`${rateText(offered)} are offered`);
  if (known(latency?.p99)) parts.push(`99 % of rows within ${milliseconds(latency.p99)}`);
  return parts.join(", ") || "nothing is measured yet";
}

// `41 s behind, caught up in about 2 min`: the controller's words without the verdict.
const behind = ({ text }) => (text ?? "").replace(/^[^,]*, /, "");

// What is measured when it does not keep up: latency that grows, queues that grow, more offered than fits.
function trouble(picture) {
  const { topology, slope } = picture;
  const parts = [];
  if (slope > 0) parts.push(`latency grows by ${milliseconds(slope * 1000)} every second`);
  if (picture.stable.text) parts.push(behind(picture.stable));
  const growing = (topology?.order ?? []).filter((name) => topology.tasks[name].grows);
  if (growing.length) parts.push(`rows pile up before ${growing.join(", ")}`);
  return [...parts, load(picture)].join("; ");
}

function remedy({ enacting, held, mode, plan }) {
  if (enacting) return `plan #${enacting.epoch} is on its way`;
  if (held) return "no new plan is made: resume, or lower the rate";
  if (plan.degraded) return "add VMs, or lower the rate";
  return (mode ?? "auto") === "auto"
    ? "the controller plans again if it lasts"
    : `in mode ${mode} nothing changes by itself: approve a plan, or lower the rate`;
}

function totals({ tuples }) {
  const { acked, emitted, lost } = tuples;
  if (!known(acked) || !known(emitted)) return "this was the last moment of the run";
  return `${count(acked)} of ${count(emitted)} rows are done, ${count(lost)} lost`;
}

function newNotice(_, key) {
  return make("p", { class: "notice", "data-notice": key.split(" ")[0] }, make("b"), " ", make("span"));
}

function drawNotice(node, { level, word, text }) {
  mark(node, "data-state", level);
  say(node.firstChild, word);
  say(node.lastChild, text);
}
