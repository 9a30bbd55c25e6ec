// Predicted against actual: a bar for what is measured, a tick for what the model says, and the drift between them.
import { fill, isOpen, keyed, make, mark, moreButton, say, scrolled } from "./elements.js";
import { driftKeys, driftLevel, DRIFTS } from "./levels.js";
import { flowOf, known, percent, rateText, signed } from "./numbers.js";

const FEW = 12;
const GROUPS = [
  {
    kind: "rate",
    title: "Rate of each task",
    hint: "drift: part of the prediction",
    rows: taskRows,
    text: rateText,
  },
  {
    kind: "cpu",
    title: "CPU of each slot",
    hint: "drift: part of the slot",
    rows: (p) => slotRows(p, "cpu"),
    text: percent,
  },
  {
    kind: "memory",
    title: "Memory of each slot",
    hint: "drift: part of the slot",
    rows: (p) => slotRows(p, "memory"),
    text: percent,
  },
];

export function createFidelity(section, redraw) {
  const view = section.querySelector(".view");
  view.append(
    make(
      "p",
      { class: "legend" },
      "Bar: measured · tick: the model at the present rate · ",
      ...driftKeys(),
    ),
  );
  const panels = make("div", { class: "panels" });
  view.append(panels);
  const groups = GROUPS.map((group) => newGroup(panels, group, redraw));
  return (picture) => {
    for (const group of groups) drawGroup(group, picture);
  };
}

function newGroup(panels, group, redraw) {
  const body = make("tbody");
  const more = moreButton(redraw);
  const heads = ["", "measured", "model", "drift"].map((text, n) =>
    make("th", { scope: "col" }, text || (group.kind === "rate" ? "task" : "slot")),
  );
  const table = make(
    "table",
    { class: "fidelity", "data-kind": group.kind },
    make("caption", {}, make("b", {}, group.title), make("span", { class: "soft" }, ` (${group.hint})`)),
    make("thead", {}, make("tr", {}, ...heads)),
    body,
  );
  panels.append(make("div", {}, scrolled(group.title, table), more));
  return { ...group, body, more };
}

function drawGroup(group, picture) {
  let rows = group.rows(picture);
  const many = rows.length > FEW;
  if (many && !isOpen(group.more)) rows = [...rows].sort((a, b) => size(b) - size(a)).slice(0, FEW);
  const most =
    group.kind === "rate" ? Math.max(1e-9, ...rows.flatMap((row) => [row.measured ?? 0, row.model ?? 0])) : 1;
  keyed(
    group.body,
    rows.map((row) => [row.name, row]),
    newRow,
    (node, row) => drawRow(node, row, group, most),
  );
  group.more.hidden = !many;
  say(group.more, isOpen(group.more) ? `Only the ${FEW} that drift most` : "Show all, not only those that drift most");
}

const size = (row) => (known(row.drift) ? Math.abs(row.drift) : -1);

function newRow(row) {
  return make(
    "tr",
    { [row.task ? "data-task" : "data-slot"]: row.name },
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
    return { name, task: true, measured, model, drift };
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
