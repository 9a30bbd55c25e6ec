// The numbers of now, and those of the last ten minutes as a chart of the slope and a table.
import { keyed, make, scrolled, table, textTable } from "../core/elements.js";
import { VERDICTS } from "../core/levels.js";
import {
  clock,
  count,
  figure,
  known,
  milliseconds,
  NONE,
  price,
  rate,
  rateText,
  signed,
  some,
} from "../core/numbers.js";
import { COLUMNS, createSlope, valuesOf } from "../overview/charts.js";

export function createFigures(section) {
  const { node, fill } = textTable("figure", ["figure", "now", "detail"]);
  section.querySelector(".view").append(scrolled("Figures", node));
  return (picture) => fill(Object.entries(figuresOf(picture)));
}

function lag(rates) {
  if (!known(rates.lag_rows)) return "";
  return rates.lag_rows
    ? `, ${count(rates.lag_rows)} rows, ${rates.lag_s.toFixed(1)} s behind`
    : ", nothing behind";
}

function figuresOf(picture) {
  const { rates, latency_ms: latency, plan, tuples } = picture;
  const total = Object.values(picture.vms).reduce((sum, vm) => sum + vm.slots, 0);
  const verdict = VERDICTS[picture.stable.verdict];
  const slope = known(picture.slope)
    ? `latency ${signed(picture.slope * 1000, "", 1)} ms per s`
    : "slope N/A";
  const planned =
    plan && `${plan.allocator.toUpperCase()} + ${plan.mapper.toUpperCase()}, since ${clock(plan.since)}`;
  return {
    verdict: ["keeps up?", `${verdict.glyph} ${verdict.word}`, slope],
    offered_tps: ["offered", rateText(rates.offered_tps), `emitted ${rate(rates.emitted_tps)}${lag(rates)}`],
    backlog_s: ["not done yet", some(picture.stable.backlog_rows, "row"), known(picture.stable.backlog_s) ? `the oldest waits ${picture.stable.backlog_s.toFixed(1)} s` : ""],
    acked_tps: ["done", rateText(rates.acked_tps), `in flight ${count(tuples.in_flight)}`],
    predicted_tps: ["can carry", plan && !known(rates.predicted_tps) ? "not known yet" : rateText(rates.predicted_tps), `planned for ${rate(rates.planned_tps)}`],
    p99_ms: [
      "latency p99",
      milliseconds(latency.p99),
      `p50 ${milliseconds(latency.p50)}, p95 ${milliseconds(latency.p95)}`,
    ],
    slots: [
      "slots in use",
      plan ? `${count(plan.slots.used)} of ${total}` : NONE,
      plan ? some(plan.threads, "thread") : "",
    ],
    plan: ["plan in force", plan ? `#${plan.epoch}` : NONE, planned ?? ""],
    lost: [
      "lost",
      count(tuples.lost),
      `dead letters ${count(tuples.dead_lettered)}, replayed ${count(tuples.replayed)}`,
    ],
    usd_per_hour: [
      "cost of the VMs",
      plan ? price(plan.usd_per_hour) : NONE,
      `mode ${picture.mode ?? NONE}, ${picture.stage}`,
    ],
  };
}

export function createHistory(section) {
  section
    .querySelector(".view")
    .append(make("p", { class: "soft" }, "Slope of latency, ms per s: above 0 the run falls behind."));
  const drawSlope = createSlope(section);
  const body = make("tbody");
  const heads = ["time, UTC", ...COLUMNS.map(([, name]) => name)];
  section
    .querySelector(".view")
    .append(scrolled("Rates in rows/s, latency in ms, its slope in ms per s", table(heads, body), " tall"));
  return (picture) => {
    drawSlope(picture);
    const { history } = picture;
    const rows = (history.time ?? []).map((time, n) => [time, n]).reverse();
    const columns = COLUMNS.map(([column]) => valuesOf(history, column));
    keyed(
      body,
      rows,
      (n, time) => newRow(columns, n, time),
      () => {},
    );
  };
}

function newRow(columns, n, time) {
  const cells = columns.map((values) => make("td", { class: "number" }, figure(values[n])));
  return make("tr", {}, make("th", { scope: "row" }, clock(time)), ...cells);
}
