// Rolling charts of rates, latency and slope, every re-plan a marker. plotly.js is loaded once they come into sight.
import { make, mark, say, scrolled } from "./elements.js";
import { clock, figure, known } from "./numbers.js";
import { colour } from "./theme.js";

const TABLE_ROWS = 20;
const DECADES = [-1, 0, 1, 2, 3, 4, 5].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
const CHARTS = [
  {
    name: "rate",
    title: "Rates",
    unit: "t/s",
    lines: [
      ["offered_tps", "offered", "soft", "dot"],
      ["acked_tps", "acked", "blue", "solid"],
      ["planned_tps", "planned for", "amber", "dash"],
      ["predicted_tps", "can carry", "red", "longdashdot"],
    ],
  },
  {
    name: "latency",
    title: "Latency, due to done",
    unit: "ms, logarithmic axis",
    log: true,
    lines: [
      ["p50_ms", "p50", "blue", "solid"],
      ["p95_ms", "p95", "amber", "dash"],
      ["p99_ms", "p99", "red", "dot"],
    ],
  },
  {
    name: "slope",
    title: "Slope of latency",
    unit: "s/s; above 0: falls behind",
    lines: [["slope", "slope", "blue", "solid"]],
  },
];

export function createCharts(section) {
  const view = section.querySelector(".view");
  const frame = make("div", { class: "charts" });
  view.append(
    make(
      "p",
      { class: "legend" },
      "▽ and an upright line: a new plan · all times are UTC",
    ),
    frame,
  );
  const charts = CHARTS.map((chart) => newChart(frame, chart));
  let turn = 0;
  const draw = (picture) => {
    turn += 1; // one chart at a time: each costs as much as the rest of the page
    charts.forEach((chart, n) => {
      if (turn <= 1 || turn % charts.length === n) drawChart(chart, picture, section);
    });
  };
  return {
    draw,
    restyle: () => {
      turn = 0;
    },
  };
}

function newChart(frame, chart) {
  const plot = make("div", {
    class: "plot",
    "data-chart": chart.name,
    role: "img",
    "aria-label": chart.title,
  });
  const body = make("tbody");
  const heads = ["time", ...chart.lines.map(([, title]) => title)].map((text) =>
    make("th", { scope: "col" }, text),
  );
  const table = scrolled(
    `${chart.title} as a table`,
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body),
  );
  const details = make("details", {}, make("summary", {}, `${chart.title} as a table`), table);
  frame.append(
    make(
      "figure",
      {},
      make("figcaption", {}, make("b", {}, chart.title), make("span", { class: "soft" }, ` (${chart.unit})`)),
      plot,
      details,
    ),
  );
  return { ...chart, plot, body, details };
}

function drawChart(chart, picture, section) {
  const { history } = picture;
  mark(chart.plot, "aria-label", `${chart.title}: ${latest(chart, history)}`);
  mark(chart.plot, "data-points", history.time?.length ?? 0);
  if (chart.details.open) drawTable(chart, history);
  withPlotly((plotly) => {
    const times = (history.time ?? []).map((seconds) => new Date(seconds * 1000).toISOString());
    const traces = chart.lines.map(([column, name, tint, dash]) => ({
      x: times,
      y: history[column] ?? [],
      name,
      type: "scatter",
      mode: "lines",
      connectgaps: false,
      line: { color: colour(tint), dash, width: 2 },
      hovertemplate: `%{y:.3~s}<extra>${name}</extra>`,
    }));
    plotly.react(chart.plot, traces, layoutOf(chart, picture, times), {
      displayModeBar: false,
      responsive: true,
    });
    mark(chart.plot, "data-drawn", true);
  }, section);
}

function layoutOf(chart, picture, times) {
  const grid = {
    gridcolor: colour("line"),
    linecolor: colour("line"),
    zerolinecolor: colour("soft"),
    tickfont: { size: 12 },
  };
  const plans = replans(picture, times);
  return {
    height: 270,
    margin: { l: 54, r: 12, t: 46, b: 30 },
    hovermode: "x unified",
    showlegend: chart.lines.length > 1,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    uirevision: "kept",
    font: { color: colour("ink"), family: "system-ui, 'DejaVu Sans', sans-serif", size: 13 },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
    legend: { orientation: "h", x: 0, y: 1.08, yanchor: "bottom", font: { size: 12 } },
    xaxis: { ...grid, type: "date", tickformat: "%H:%M:%S", nticks: 6, zeroline: false },
    yaxis: {
      ...grid,
      ...(chart.log
        ? { type: "log", tickvals: DECADES }
        : chart.name === "slope"
          ? { zeroline: true }
          : { rangemode: "tozero" }),
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
        y: 1,
        yanchor: "bottom",
        xanchor: "center",
        text: `▽${name}`,
        showarrow: false,
        font: { size: 11, color: colour("soft") },
      })),
  };
}

// [time, "#3", apart] of each plan in sight; apart: far enough from the next one for its name to be read.
function replans(picture, times) {
  const since = times[0];
  const apartMs = 0.07 * (Date.parse(times[times.length - 1]) - Date.parse(since));
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

function latest(chart, history) {
  const last = (column) => [...(history[column] ?? [])].reverse().find(known);
  return `now ${chart.lines.map(([column, name]) => `${name} ${figure(last(column))}`).join(", ")} ${chart.unit}`;
}

function drawTable(chart, history) {
  const length = history.time?.length ?? 0;
  const rows = [];
  for (let n = length - 1; n >= Math.max(0, length - TABLE_ROWS); n -= 1) {
    const cells = chart.lines.map(([column]) =>
      make("td", { class: "number" }, figure(history[column]?.[n])),
    );
    rows.push(make("tr", {}, make("th", { scope: "row" }, clock(history.time[n])), ...cells));
  }
  chart.body.replaceChildren(...rows);
}

let loading = null;

function withPlotly(then, section) {
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
    () => {
      say(
        section.querySelector(".legend").firstChild,
        "The charts cannot be drawn: plotly.js did not come. The tables below hold the numbers.",
      );
    },
  );
}
