// Tables of tasks, VMs and events that can be sorted by every column.
import { make, mark, say, scrolled, textTable } from "../core/elements.js";
import { levelOf, levelText, loadPlace } from "../core/levels.js";
import {
  clock,
  count,
  figure,
  flowOf,
  known,
  milliseconds,
  moment,
  money,
  NONE,
  percent,
  rate,
} from "../core/numbers.js";

const loadText = (task) => [levelText(task), loadPlace(task)].filter(Boolean).join(", ");
const speedText = (vm) =>
  figure(vm.speed ?? 1) +
  (vm.speed_since ? ` by ${vm.speed_by} since ${clock(vm.speed_since)}` : "");
const bytes = (value) => (known(value) ? `${figure(value / 1024 ** 2)} MiB` : NONE);

const TASKS = [
  ["task", (task) => task.name],
  ["kind", (task) => (task.static ? `${task.kind}, static` : task.kind)],
  ["threads", (task) => task.threads, count],
  ["rate, rows/s", flowOf, rate],
  ["model, rows/s", (task) => task.predicted_tps, rate],
  ["out, rows/s", (task) => task.rate_out_tps, rate],
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
  ["speed", (vm) => vm.speed ?? 1, null, speedText],
  ["memory/slot", (vm) => vm.slot_memory_bytes, bytes],
  ["per hour", (vm) => vm.usd_per_hour, money],
];

const EVENTS = [
  ["time, UTC", (event) => event.time, null, (event) => clock(event.time)],
  ["event", (event) => event.kind.replaceAll("_", " ")],
  ["what happened", (event) => event.text],
];

export function createTasks(section, redraw) {
  const draw = sortable(section, "task", TASKS, redraw);
  const drawEventTimes = createEventTimes(section);
  const drawMetrics = createMetrics(section);
  return (picture) => {
    drawEventTimes(picture.topology);
    drawMetrics(picture.topology);
    draw(
      (picture.topology?.order ?? []).map((name) => ({
        name,
        ...picture.topology.tasks[name],
        level: levelOf(picture.topology.tasks[name].load, picture.topology.tasks[name].grows),
      })),
    );
  };
}

// How far event time has come in the tasks that have it; nothing is shown where none has.
const EVENT_TIMES = ["event time of", "watermark", "behind now, s", "held back by", "rows late", "rows without a time"];
function createEventTimes(section) {
  const heads = EVENT_TIMES.map((title, n) =>
    make("th", { scope: "col", class: n === 2 || n === 4 ? "number" : null }, title),
  );
  const { node, fill } = textTable("event-time", heads);
  const box = scrolled("Event time of tasks", node);
  section.querySelector(".view").append(box);
  return (topology) => {
    const rows = (topology?.order ?? []).flatMap((task) => {
      const now = topology.tasks[task].event_time;
      if (now === undefined) return [];
      const without = Object.entries(now.rows_without_time ?? {}).filter(([, rows]) => rows);
      const texts = [
        known(now.watermark) ? moment(now.watermark) : (now.state ?? NONE),
        figure(now.lag_s),
        now.held_by ?? NONE,
        count(now.late_rows),
        without.map(([source, rows]) => `${count(rows)} of ${source}`).join(", ") || "0",
      ];
      return [[task, [task, ...texts]]];
    });
    mark(box, "hidden", rows.length ? null : "");
    fill(rows);
  };
}

// Metrics that tasks keep themselves; nothing is shown while there are none.
function createMetrics(section) {
  const { node, fill } = textTable("metric", ["task", "metric", "kind", "value", "observed", "p50", "p99"]);
  const box = scrolled("Metrics of tasks' own", node);
  section.querySelector(".view").append(box);
  return (topology) => {
    const rows = (topology?.order ?? []).flatMap((task) =>
      Object.entries(topology.tasks[task].metrics ?? {}).map(([name, one]) => [
        `${task} ${name}`,
        [task, name, one.kind, figure(one.value), ...[one.count, one.p50, one.p99].map(figure)],
      ]),
    );
    mark(box, "hidden", rows.length ? null : "");
    fill(rows);
  };
}

export function createVms(section, redraw) {
  const draw = sortable(section, "vm", VMS, redraw);
  return (picture) => draw(Object.entries(picture.vms).map(([name, vm]) => ({ name, ...vm })));
}

// What happened, newest first; a word in the field above leaves only the rows that hold it.
export function createEvents(section, redraw) {
  const field = make("input", { type: "search", id: "events-filter", autocomplete: "off", oninput: redraw });
  const said = make("span", { class: "small" });
  const view = section.querySelector(".view");
  view.append(make("label", { class: "small", for: "events-filter" }, "Only with "), field, " ", said);
  const draw = sortable(section, "event", EVENTS, redraw);
  return (picture) => {
    const wanted = field.value.trim().toLowerCase();
    const every = Object.entries(picture.events ?? {}).map(([name, event]) => ({ name, ...event }));
    const found = every.filter(({ kind, text }) => `${kind} ${text}`.toLowerCase().includes(wanted));
    draw(found.sort((a, b) => Number(b.name) - Number(a.name)));
    say(said, `${count(found.length)} of the last ${count(every.length)} events`);
  };
}

function sortable(section, what, columns, redraw) {
  const order = { column: null, down: false };
  const sort = (n) => {
    order.down = order.column === n ? !order.down : false;
    order.column = n;
    heads.forEach((head, other) =>
      mark(head, "aria-sort", other === n ? (order.down ? "descending" : "ascending") : null),
    );
    redraw();
  };
  const heads = columns.map(([title, , text], n) =>
    make(
      "th",
      { scope: "col", class: text ? "number" : null },
      make("button", { type: "button", class: "plain", onclick: () => sort(n) }, title),
    ),
  );
  const { node, fill } = textTable(what, heads);
  section.querySelector(".view").append(scrolled(section.querySelector("h2").textContent, node, " tall"));
  const textOf = (row, [, value, text, whole]) =>
    whole ? whole(row) : text ? text(value(row)) : (value(row) ?? NONE);
  return (rows) =>
    fill(
      sorted(rows, columns, order).map((row) => [
        row.name,
        columns.map((column) => textOf(row, column)),
        { "data-level": row.level, "data-state": row.state },
      ]),
    );
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
