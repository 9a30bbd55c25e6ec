// Elements that change as little as possible: what has its value already is not touched.
import { known } from "./numbers.js";

const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else mark(node, name, value);
  }
  node.append(...children);
  return node;
}

// Null, undefined and false remove an attribute, true sets an empty one.
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

export function say(node, text) {
  const wanted = String(text);
  const only = node.firstChild;
  if (only !== null && only === node.lastChild && only.nodeType === Node.TEXT_NODE) {
    if (only.data !== wanted) only.data = wanted;
  } else if (node.textContent !== wanted || only === null) node.textContent = wanted;
}

function vary(node, property, value) {
  if (node.style.getPropertyValue(property) !== value) node.style.setProperty(property, value);
}

export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

// A bar and a tick on it, both as parts of the whole; what is not known is not drawn.
export function fill(gauge, measured, predicted) {
  vary(gauge, "--measured", known(measured) ? part(measured) : "0%");
  vary(gauge, "--predicted", known(predicted) ? part(predicted) : "-10%");
}

const part = (value) => `${Math.round(100 * Math.min(1, value))}%`;

// What may be wider or higher than its place: scrolled, also by the keyboard.
export function scrolled(label, child, more = "") {
  return make("div", { class: `scroll${more}`, tabindex: 0, role: "group", "aria-label": label }, child);
}

// How to read a view; closed until somebody asks.
export const legend = (...parts) =>
  make("details", { class: "legend" }, make("summary", {}, "Legend"), make("p", {}, ...parts));

// heads: texts, or cells.
export function table(heads, body, attributes = {}) {
  const cells = heads.map((head) => (typeof head === "string" ? make("th", { scope: "col" }, head) : head));
  return make("table", attributes, make("thead", {}, make("tr", {}, ...cells)), body);
}

// A table of texts: fill([[key, texts, attributes]]) with a row per key, which has it as `data-…`.
export function textTable(what, heads, attributes) {
  const body = make("tbody");
  const node = table(heads, body, attributes);
  const classes = [...node.rows[0].cells].slice(1).map((cell) => cell.className || null);
  const newRow = (_, key) =>
    make(
      "tr",
      { [`data-${what}`]: key },
      make("th", { scope: "row" }),
      ...classes.map((name) => make("td", { class: name })),
    );
  const fillRow = (row, [texts, marks = {}]) => {
    texts.forEach((text, n) => say(row.children[n], text));
    for (const [name, value] of Object.entries(marks)) mark(row, name, value);
  };
  return {
    node,
    fill: (rows) =>
      keyed(
        body,
        rows.map(([key, ...row]) => [key, row]),
        newRow,
        fillRow,
      ),
  };
}

// Lines that begin with +, - or ~.
export const diffOf = (lines) =>
  make("ul", { class: "diff" }, ...lines.map((line) => make("li", { "data-sign": line[0] }, line)));

// One child per [key, value], in this order. create(value, key) makes it once, update(node, value, key) every time.
const kept = new WeakMap();

export function keyed(parent, entries, create, update) {
  let nodes = kept.get(parent);
  if (nodes === undefined) kept.set(parent, (nodes = new Map()));
  const wanted = new Set(entries.map(([key]) => key));
  for (const [key, node] of nodes) {
    if (wanted.has(key)) continue;
    node.remove();
    nodes.delete(key);
  }
  let place = parent.firstElementChild;
  for (const [key, value] of entries) {
    let node = nodes.get(key);
    if (node === undefined) nodes.set(key, (node = create(value, key)));
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
    update(node, value, key);
  }
}
