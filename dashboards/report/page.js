// Draws the figures of the page in the colours of its theme, and again when the theme changes.
"use strict";
const THEMES = {
  light: { paper: "#ffffff", ink: "#1b1f24", soft: "#57606a", rule: "#8b949e", grid: "#e6eaee", blue: "#1f5fa8",
    "blue-soft": "rgba(31,95,168,0.22)", orange: "#c26a00", "orange-soft": "rgba(194,106,0,0.20)", red: "#9c1c28",
    purple: "#8a4a9e", teal: "#00796b", sky: "#3a9bd9", grey: "#7a838d" },
  dark: { paper: "#14181d", ink: "#e6e9ed", soft: "#a3acb7", rule: "#6b7683", grid: "#2a323b", blue: "#6aa9ee",
    "blue-soft": "rgba(106,169,238,0.28)", orange: "#f0a63c", "orange-soft": "rgba(240,166,60,0.24)", red: "#ff7a85",
    purple: "#cf9be0", teal: "#4fc3b0", sky: "#9fd6ff", grey: "#98a2ad" },
};
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function inTheme(value, theme) {
  if (typeof value === "string") {
    return value[0] === "@" && value.slice(1) in theme ? theme[value.slice(1)] : value;
  }
  if (Array.isArray(value)) return value.map((part) => inTheme(part, theme));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, inTheme(part, theme)]));
}

function axis(theme, own) {
  const title = Object.assign({ font: { size: 13 }, standoff: 8 }, own && own.title);
  const plain = { gridcolor: theme.grid, zerolinecolor: theme.rule, linecolor: theme.rule, automargin: true };
  return Object.assign(plain, own, { title: title });
}

function layoutOf(own, theme) {
  const plain = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", height: 360, hovermode: "closest",
    font: { color: theme.ink, family: 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif', size: 13 },
    margin: { l: 64, r: 16, t: 26, b: 48 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
  };
  const xaxis = Object.assign({ zeroline: false }, own.xaxis);
  return Object.assign(plain, own, { xaxis: axis(theme, xaxis), yaxis: axis(theme, own.yaxis) });
}

// On a phone: no colour scale beside a map (its numbers say it), the small ones among them upright and smaller.
function inWidth(figure) {
  if (window.innerWidth >= 760) return figure;
  for (const trace of figure.data) {
    if (trace.type === "heatmap") {
      trace.showscale = false;
      if (trace.x.length > 6) trace.texttemplate = "";
      trace.textfont = { size: 10 };
    }
  }
  figure.layout.margin = { l: 46, r: 8, t: 26, b: 44 };
  figure.layout.legend = { orientation: "h", y: -0.25, yanchor: "top", x: 0, font: { size: 11 } };
  return figure;
}

function draw() {
  const theme = THEMES[dark.matches ? "dark" : "light"];
  for (const place of document.querySelectorAll("[data-figure]")) {
    const figure = inWidth(inTheme(JSON.parse(document.getElementById(place.dataset.figure).textContent), theme));
    const config = { responsive: true, displayModeBar: false };
    Plotly.react(place, figure.data, layoutOf(figure.layout, theme), config);
  }
}

document.addEventListener("DOMContentLoaded", draw);
dark.addEventListener("change", draw);
