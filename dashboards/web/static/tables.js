// Tables of tasks and VMs that can be sorted by every column.
import { keyed, make, mark, say, scrolled } from "./elements.js";
import { levelOf, levelText, loadPlace } from "./levels.js";
import { count, figure, flowOf, known, milliseconds, money, NONE, percent, rate } from "./numbers.js";

const loadText = (task) => [levelText(task), loadPlace(task)].filter(Boolean).join(", ");
const bytes = (value) => (known(value) ? `${figure(value / 1024 ** 2)} MiB` : NONE);

const TASKS = [
  ["task", (task) => task.name],
  ["kind", (task) => (task.static ? `${task.kind}, static` : task.kind)],
  ["threads", (task) => task.threads, count],
  ["rate t/s", flowOf, rate],
  ["model t/s", (task) => task.predicted_tps, rate],
  ["out t/s", (task) => task.rate_out_tps, rate],
  ["load", (task) => task.load, null, loadText],
  ["threads at work", (task) => task.busy, percent],
  ["rows waiting", (task) => task.queue, figure],
  ["p50", (task) => task.p50_ms, milliseconds],
  ["p95", (task) => task.p95_ms, milliseconds],
  ["p99", (task) => task.p99_ms, milliseconds],
];
const VMS = [
  ["VM", (vm) => vm.name],
  ["state", (vm) => [vm.state, vm.cordon, vm.provided && "on demand"].filter(Boolean).join(", ")],
  ["slots used", (vm) => vm.slots_used, null, (vm) => `${vm.slots_used} of ${vm.slots}`],
  ["threads", (vm) => vm.threads, count],
  ["CPU", (vm) => vm.cpu, percent],
  ["memory", (vm) => vm.memory, percent],
  ["cores/slot", (vm) => vm.slot_cores, figure],
  ["memory/slot", (vm) => vm.slot_memory_bytes, bytes],
  ["per hour", (vm) => vm.usd_per_hour, money],
];

export function createTasks(section, redraw) {
  const draw = sortable(section, "task", TASKS, redraw);
  return (picture) =>
    draw(
      (picture.topology?.order ?? []).map((name) => ({
        name,
        ...picture.topology.tasks[name],
        level: levelOf(picture.topology.tasks[name].load, picture.topology.tasks[name].grows),
      })),
    );
}

export function createVms(section, redraw) {
  const draw = sortable(section, "vm", VMS, redraw);
  return (picture) => draw(Object.entries(picture.vms).map(([name, vm]) => ({ name, ...vm })));
}

function sortable(section, what, columns, redraw) {
  const body = make("tbody");
  const order = { column: null, down: false };
  const heads = columns.map(([title, , text], n) =>
    make(
      "th",
      { scope: "col", class: text ? "number" : null },
      make(
        "button",
        {
          type: "button",
          class: "plain",
          onclick: () => {
            order.down = order.column === n ? !order.down : false;
            order.column = n;
            heads.forEach((head, other) =>
              mark(head, "aria-sort", other === n ? (order.down ? "descending" : "ascending") : null),
            );
            redraw();
          },
        },
        title,
      ),
    ),
  );
  const label = section.querySelector("h2").textContent;
  section
    .querySelector(".view")
    .append(
      scrolled(
        `${label}, table`,
        make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body),
        " tall",
      ),
    );
  return (rows) => {
    keyed(
      body,
      sorted(rows, columns, order).map((row) => [row.name, row]),
      (row) => newRow(what, columns, row),
      (node, row) => drawRow(node, columns, row),
    );
  };
}

function sorted(rows, columns, { column, down }) {
  if (column === null) return rows;
  const value = columns[column][1];
  const compared = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (typeof x === "string" || typeof y === "string")
      return String(x).localeCompare(String(y), "en", { numeric: true });
    return (x ?? -Infinity) - (y ?? -Infinity);
  };
  return [...rows].sort((a, b) => (down ? compared(b, a) : compared(a, b)));
}

function newRow(what, columns, row) {
  const cells = columns.map(([, , text], n) =>
    make(n === 0 ? "th" : "td", n === 0 ? { scope: "row" } : { class: text ? "number" : null }),
  );
  return make("tr", { [`data-${what}`]: row.name }, ...cells);
}

function drawRow(node, columns, row) {
  mark(node, "data-level", row.level);
  mark(node, "data-state", row.state);
  columns.forEach(([, value, text, whole], n) =>
    say(node.children[n], whole ? whole(row) : text ? text(value(row)) : (value(row) ?? NONE)),
  );
}
