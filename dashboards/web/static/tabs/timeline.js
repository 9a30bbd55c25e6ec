// Re-plans and decisions, also those to do nothing: why, what else was thought of, what moved and what it cost.
import { diffOf, keyed, make, mark, say } from "../core/elements.js";
import {
  clock,
  count,
  duration,
  figure,
  known,
  milliseconds,
  NONE,
  rateText,
  some,
} from "../core/numbers.js";

const GLYPHS = { plan: "▲", proposal: "?", rolled_back: "↶", none: "–" };
const WORDS = { plan: "re-planned", proposal: "proposed", rolled_back: "rolled back", none: "not taken" };

export function createTimeline(section, redraw) {
  const view = section.querySelector(".view");
  const box = make("input", { type: "checkbox", onchange: redraw });
  box.checked = true;
  const list = make("ol", { class: "timeline" });
  const none = make("p", { class: "soft" }, "Nothing has been decided yet.");
  view.append(make("label", { class: "small" }, box, " also decisions not taken"), list, none);
  let shown = null;
  let all = null;
  return (picture) => {
    if (shown === picture.decisions && all === box.checked) return;
    [shown, all] = [picture.decisions, box.checked];
    const found = Object.entries(picture.decisions ?? {})
      .filter(([, decision]) => box.checked || decision.action !== "none")
      .sort((a, b) => Number(b[0]) - Number(a[0]));
    keyed(list, found, newDecision, drawDecision);
    none.hidden = found.length > 0;
  };
}

function kindOf(decision) {
  if (decision.rolled_back) return "rolled_back";
  return decision.action in WORDS ? decision.action : "plan";
}

function newDecision(_, number) {
  return make(
    "li",
    { "data-decision": number },
    make(
      "details",
      {},
      make(
        "summary",
        {},
        make("time"),
        make("span", { class: "kind" }),
        make("span", { class: "text" }),
        make("span", { class: "soft brief" }),
      ),
      make("div", { class: "body" }),
    ),
  );
}

function drawDecision(node, decision) {
  const kind = kindOf(decision);
  const [time, word, text, brief] = node.firstChild.firstChild.children;
  mark(node, "data-action", decision.action);
  mark(node, "data-trigger", decision.trigger);
  mark(node, "data-kind", kind);
  say(time, clock(decision.time));
  mark(time, "datetime", decision.time);
  say(
    word,
    `${GLYPHS[kind]} ${decision.action === "plan" && decision.trigger === "start" ? "planned" : WORDS[kind]}`,
  );
  say(text, decision.text);
  say(brief, briefOf(decision));
  const body = node.firstChild.lastChild;
  const stamp = JSON.stringify(decision);
  if (body.decision === stamp) return;
  body.decision = stamp;
  body.replaceChildren(...parts(decision));
}

function briefOf(decision) {
  const told = [];
  if (decision.action !== "none") told.push(`plan #${decision.epoch}`);
  if (known(decision.moves)) told.push(`${some(decision.moves, "thread")} move`);
  if (known(decision.pause_ms)) told.push(`pause ${milliseconds(decision.pause_ms)}`);
  if (known(decision.lost)) told.push(`${count(decision.lost)} lost`);
  if (known(decision.time_to_stable_s)) told.push(`stable after ${duration(decision.time_to_stable_s)}`);
  return told.join(" · ");
}

function parts(decision) {
  const facts = [["trigger", `${decision.trigger}: ${decision.rule}`]];
  if (decision.action !== "none") {
    facts.push([
      "plan",
      `#${decision.epoch} for ${rateText(decision.rate_tps)}, can carry ${rateText(decision.predicted_tps)}, ${some(decision.slots, "slot")}`,
    ]);
    facts.push(["threads that move", count(decision.moves)], ["pause", milliseconds(decision.pause_ms)]);
    if (decision.state_bytes)
      facts.push(["state that moves", `${figure(decision.state_bytes / 1e6)} MB, ${duration(decision.expected_pause_s)} expected`]);
    facts.push(
      ["rows lost", count(decision.lost)],
      ["time to stable", duration(decision.time_to_stable_s)],
    );
  }
  const found = [terms(facts)];
  const numbers = Object.entries(decision.numbers ?? {}).map(([name, value]) => [name, written(value)]);
  if (numbers.length) found.push(make("h3", {}, "Numbers"), terms(numbers));
  if (decision.alternatives?.length) {
    found.push(
      make("h3", {}, "Alternatives rejected"),
      make("ul", {}, ...decision.alternatives.map((text) => make("li", {}, text))),
    );
  }
  if (decision.diff?.length) found.push(make("h3", {}, "Diff"), diffOf(decision.diff));
  return found;
}

const terms = (pairs) =>
  make(
    "dl",
    { class: "facts" },
    ...pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );

function written(value) {
  if (known(value)) return figure(value);
  if (value === null || value === undefined) return NONE;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
