// Rates against capacity, and latency, on one time axis; every re-plan a line. plotly.js is loaded with the first picture.
import { legend, make, mark, say } from "../core/elements.js";
import { figure, known } from "../core/numbers.js";
import { colour } from "../core/theme.js";

// Blue is measured, ink is what the models and the plan say.
const RATE = {
  title: "rows/s",
  lines: [
    ["offered_tps", "offered", "blue", "dot"],
    ["acked_tps", "done", "blue", "solid"],
    ["planned_tps", "planned for", "soft", "dash"],
    ["predicted_tps", "can carry", "ink", "solid"],
  ],
};
const PRINTED_PX = 680; // fits an upright page
const NAME_PX = 48; // of a plan's number
const DECADES = [-1, 0, 1, 2, 3, 4, 5].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
const LATENCY = {
  title: "latency, ms (log)",
  axis: { type: "log", tickvals: DECADES, rangemode: "normal" },
  lines: [
    ["p50_ms", "p50", "blue", "dot"],
    ["p95_ms", "p95", "blue", "dash"],
    ["p99_ms", "p99", "blue", "solid"],
    ["backlog_s", "oldest row not done", "ink", "dot"],
  ],
};
const SLOPE = {
  title: "ms per s",
  axis: { zeroline: true, rangemode: "normal" },
  lines: [["slope", "slope of latency", "blue", "solid"]],
};
const PANELS = [RATE, LATENCY, SLOPE];
export const COLUMNS = PANELS.flatMap(({ lines }) => lines.map(([column, name]) => [column, name]));
const UNITS = { slope: 1000, backlog_s: 1000 }; // × what the history has

export function valuesOf(history, column) {
  const unit = UNITS[column];
  const found = history[column] ?? [];
  return unit ? found.map((value) => (known(value) ? unit * value : value)) : found;
}

export function createCharts(section) {
  section
    .querySelector("h2")
    .after(
      legend(
        "Blue: measured. Black or white: what the plan can carry; grey: what it was made for. An upright line with ▽ is a new plan. All times are UTC; the numbers are a table under History.",
      ),
    );
  const chart = newChart(section, "rates", [RATE, LATENCY]);
  let turn = 0;
  return (picture) => {
    turn += 1; // a chart costs as much as the rest of the page
    if (turn % 2 === 1 || !chart.dataset.drawn) drawChart(chart, [RATE, LATENCY], picture);
  };
}

export function createSlope(section) {
  const chart = newChart(section, "slope", [SLOPE]);
  return (picture) => drawChart(chart, [SLOPE], picture);
}

function newChart(section, name) {
  const chart = make("div", { class: "plot", "data-chart": name, role: "img", "aria-label": name });
  section.querySelector(".view").append(chart, make("p", { class: "soft", role: "status" }));
  return chart;
}

function drawChart(chart, panels, picture) {
  const { history } = picture;
  mark(chart, "aria-label", panels.map((panel) => latest(panel, history)).join("; "));
  mark(chart, "data-points", history.time?.length ?? 0);
  if (chart.clientWidth === 0 || chart.closest("[hidden]")) return; // drawn when its tab is opened
  withPlotly(chart, (plotly) => {
    const times = (history.time ?? []).map((seconds) => new Date(seconds * 1000).toISOString());
    const traces = panels.flatMap(({ lines }, n) => lines.map((line) => traceOf(line, n, times, history)));
    plotly.react(chart, traces, layoutOf(panels, picture, times, chart), {
      displayModeBar: false,
      responsive: true,
    });
    mark(chart, "data-drawn", true);
  });
}

const traceOf = ([column, name, tint, dash], n, times, history) => ({
  x: times,
  y: valuesOf(history, column),
  yaxis: n === 0 ? "y" : `y${n + 1}`,
  name,
  type: "scatter",
  mode: "lines",
  connectgaps: false,
  line: { color: colour(tint), dash, width: tint === "ink" ? 2.5 : 2 },
  hovertemplate: `%{y:.3~s}<extra>${name}</extra>`,
});

function layoutOf(panels, picture, times, chart) {
  const grid = {
    gridcolor: colour("line"),
    linecolor: colour("line"),
    zerolinecolor: colour("soft"),
    tickfont: { size: 12 },
  };
  const plans = replans(picture, times, chart.clientWidth);
  const part = 1 / panels.length;
  const axes = panels.map(({ title, axis }, n) => [
    n === 0 ? "yaxis" : `yaxis${n + 1}`,
    {
      ...grid,
      rangemode: "tozero",
      nticks: 5,
      ...axis,
      title: { text: title, font: { size: 12 }, standoff: 4 },
      domain: [1 - (n + 1) * part + (n + 1 < panels.length ? 0.04 : 0), 1 - n * part - (n > 0 ? 0.04 : 0)],
    },
  ]);
  return {
    ...Object.fromEntries(axes),
    height: chart.clientHeight,
    width: "printing" in document.body.dataset ? PRINTED_PX : undefined,
    margin: { l: 58, r: 10, t: 34, b: 24 },
    hovermode: "x unified",
    showlegend: panels.length > 1,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    uirevision: "kept",
    font: { color: colour("ink"), family: "system-ui, 'DejaVu Sans', sans-serif", size: 13 },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
    legend: { orientation: "h", x: 0, y: 1.04, yanchor: "bottom", font: { size: 12 } },
    xaxis: {
      ...grid,
      type: "date",
      tickformat: "%H:%M:%S",
      nticks: Math.max(3, Math.floor(chart.clientWidth / 95)),
      zeroline: false,
      anchor: axes.length > 1 ? `y${axes.length}` : "y",
    },
    shapes: plans.map(([time]) => ({
      type: "line",
      x0: time,
      x1: time,
      yref: "paper",
      y0: 0,
      y1: 1,
      line: { color: colour("soft"), width: 1, dash: "dot" },
    })),
    annotations: plans
      .filter(([, , apart]) => apart)
      .map(([time, name]) => ({
        x: time,
        yref: "paper",
        y: 0,
        yanchor: "bottom",
        xanchor: "left",
        text: `▽${name}`,
        showarrow: false,
        font: { size: 11, color: colour("soft") },
      })),
  };
}

// [time, "#3", apart] of each plan in sight; apart: far enough from the next one for its name to be read.
function replans(picture, times, wide) {
  const since = times[0];
  const apartMs = (NAME_PX / wide) * (Date.parse(times[times.length - 1]) - Date.parse(since));
  const found = Object.values(picture.decisions ?? {})
    .filter(
      (decision) =>
        decision.action !== "none" && decision.epoch > 1 && since !== undefined && decision.time >= since,
    )
    .sort((a, b) => a.time.localeCompare(b.time));
  return found.map(({ time, epoch }, n) => [
    time,
    `#${epoch}`,
    n + 1 === found.length || Date.parse(found[n + 1].time) - Date.parse(time) > apartMs,
  ]);
}

function latest({ title, lines }, history) {
  const last = (column) => [...valuesOf(history, column)].reverse().find(known);
  return `now ${lines.map(([column, name]) => `${name} ${figure(last(column))}`).join(", ")} ${title}`;
}

let loading = null;

function withPlotly(chart, then) {
  if (globalThis.Plotly) {
    then(globalThis.Plotly);
    return;
  }
  loading ??= new Promise((done, failed) => {
    const script = make("script", { src: "/plotly.min.js", onload: () => done(), onerror: () => failed() });
    document.head.append(script);
  });
  loading.then(
    () => then(globalThis.Plotly),
    () => say(chart.nextSibling, "No chart: plotly.js did not load. The tab History has the numbers."),
  );
}
