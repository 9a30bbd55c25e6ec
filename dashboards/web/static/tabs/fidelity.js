// Predicted against actual: a bar for what is measured, a tick for what the model says, and the drift between them.
import { fill, keyed, legend, make, mark, say, scrolled, table } from "../core/elements.js";
import { driftKeys, driftLevel, DRIFTS } from "../core/levels.js";
import { flowOf, known, milliseconds, percent, rateText, signed } from "../core/numbers.js";

const FEW = 12; // above it what drifts most comes first
const GROUPS = [
  {
    kind: "rate",
    title: "Rate of each task",
    hint: "drift: part of the prediction",
    rows: taskRows,
    text: rateText,
  },
  {
    kind: "latency",
    title: "Latency",
    hint: "drift: part of the prediction",
    rows: latencyRows,
    text: milliseconds,
  },
  {
    kind: "cpu",
    whole: true,
    title: "CPU of each slot",
    hint: "drift: part of the slot",
    rows: (p) => slotRows(p, "cpu"),
    text: percent,
  },
  {
    kind: "memory",
    whole: true,
    title: "Memory of each slot",
    hint: "drift: part of the slot",
    rows: (p) => slotRows(p, "memory"),
    text: percent,
  },
];

const OF = { rate: "task", latency: "share of rows", cpu: "slot", memory: "slot" };

export function createFidelity(section) {
  const view = section.querySelector(".view");
  section
    .querySelector("h2")
    .after(legend("Bar: measured · tick: the model at the present rate · ", ...driftKeys()));
  const panels = make("div", { class: "panels" });
  view.append(panels);
  const groups = GROUPS.map((group) => newGroup(panels, group));
  return (picture) => {
    for (const group of groups) drawGroup(group, picture);
  };
}

function newGroup(panels, group) {
  const body = make("tbody");
  const heads = [OF[group.kind], "measured", "model", "drift"];
  const shown = table(heads, body, { class: "fidelity", "data-kind": group.kind });
  shown.prepend(
    make("caption", {}, make("b", {}, group.title), make("span", { class: "soft" }, ` (${group.hint})`)),
  );
  panels.append(scrolled(group.title, shown));
  return { ...group, body };
}

function drawGroup(group, picture) {
  let rows = group.rows(picture);
  if (rows.length > FEW) rows = [...rows].sort((a, b) => size(b) - size(a));
  const most = group.whole
    ? 1
    : Math.max(1e-9, ...rows.flatMap((row) => [row.measured ?? 0, row.model ?? 0]));
  keyed(
    group.body,
    rows.map((row) => [row.name, row]),
    newRow,
    (node, row) => drawRow(node, row, group, most),
  );
}

const size = (row) => (known(row.drift) ? Math.abs(row.drift) : -1);

function newRow(row) {
  return make(
    "tr",
    { [row.of ?? "data-slot"]: row.name },
    make("th", { scope: "row" }),
    make("td", {}, make("span", { class: "gauge", "aria-hidden": "true" }), make("span")),
    make("td", { class: "number" }),
    make("td", { class: "number drift" }),
  );
}

function drawRow(node, row, group, most) {
  const [name, measured, model, drift] = node.children;
  const level = driftLevel(row.drift, group.kind);
  mark(node, "data-drift", level);
  say(name, row.name);
  fill(measured.firstChild, row.measured / most, row.model / most);
  say(measured.lastChild, group.text(row.measured));
  say(model, group.text(row.model));
  say(drift, known(row.drift) ? `${DRIFTS[level].glyph} ${signed(100 * row.drift, " %")}` : "N/A");
  mark(drift, "title", DRIFTS[level].word);
}

function taskRows(picture) {
  const { order = [], tasks = {} } = picture.topology ?? {};
  return order.map((name) => {
    const [measured, model] = [flowOf(tasks[name]), tasks[name].predicted_tps];
    const drift = known(measured) && known(model) && model > 0 ? measured / model - 1 : undefined;
    return { name, of: "data-task", measured, model, drift };
  });
}

function latencyRows({ latency_ms: latency }) {
  return ["p50", "p95", "p99"].map((name) => {
    const [measured, model] = [latency?.[name], latency?.[`predicted_${name}`]];
    const drift = known(measured) && known(model) && model > 0 ? measured / model - 1 : undefined;
    return { name, of: "data-percentile", measured, model, drift };
  });
}

function slotRows(picture, kind) {
  return Object.entries(picture.slots)
    .filter(([, slot]) => Object.keys(slot.threads).length > 0)
    .map(([name, slot]) => {
      const [measured, model] = [slot[kind], slot[`predicted_${kind}`]];
      return { name, measured, model, drift: known(measured) && known(model) ? measured - model : undefined };
    });
}
