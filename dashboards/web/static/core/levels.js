// How hard something works, as a word, a glyph and a colour's name together: nothing is told by colour alone.
import { make } from "./elements.js";
import { known, NONE, percent } from "./numbers.js";

export const LEVELS = {
  easy: { word: "easy", glyph: "○" },
  busy: { word: "busy", glyph: "◐" },
  limit: { word: "near its limit", glyph: "●" },
  none: { word: "not measured", glyph: "·" },
};
const BUSY_FROM = 0.6;
const LIMIT_FROM = 0.85;

// grows: rows pile up, whatever the models say.
export function levelOf(share, grows = false) {
  if (grows) return "limit";
  if (!known(share)) return "none";
  return share >= LIMIT_FROM ? "limit" : share >= BUSY_FROM ? "busy" : "easy";
}

// `● 98 % near its limit`, of a task.
export function levelText({ load, grows }) {
  const { glyph, word } = LEVELS[levelOf(load, grows)];
  if (grows) return `${glyph} its queue grows`;
  return known(load) ? `${glyph} ${percent(load)} ${word}` : NONE;
}

// Where a task's load is.
export const loadPlace = ({ load_slot: slot }) => (slot ? `on ${slot}, by its model` : "");

// For a legend: all of `table` that have a colour.
const keysOf = (table, attribute) =>
  Object.entries(table)
    .filter(([name]) => name !== "none")
    .map(([name, { glyph, word }]) => make("span", { class: "key", [attribute]: name }, `${glyph} ${word}`));
export const levelKeys = () => keysOf(LEVELS, "data-level");
export const driftKeys = () => keysOf(DRIFTS, "data-drift");

// Drift as the controller judges it: `far` is what it reports.
const DRIFT = { rate: 0.2, latency: 0.35, cpu: 0.15, memory: 0.1 };
export const DRIFTS = {
  fine: { word: "as predicted", glyph: "=" },
  drifts: { word: "drifts", glyph: "~" },
  far: { word: "far off", glyph: "≠" },
  none: { word: "nothing to compare", glyph: "·" },
};

export function driftLevel(drift, kind) {
  if (!known(drift)) return "none";
  const size = Math.abs(drift);
  return size > DRIFT[kind] ? "far" : size > DRIFT[kind] / 2 ? "drifts" : "fine";
}

export const VERDICTS = {
  stable: { word: "Keeps up", glyph: "✓" },
  catching_up: { word: "Catching up", glyph: "◐" },
  unstable: { word: "Falls behind", glyph: "▲" },
  unknown: { word: "Not yet judged", glyph: "?" },
};

// Peak rate of so many threads in one slot: lines from nothing through the points, flat above the largest.
export function peakOf(points, threads) {
  let before = [0, 0];
  for (const point of points) {
    if (threads <= point[0]) {
      const part = (threads - before[0]) / (point[0] - before[0]);
      return before[1] + part * (point[1] - before[1]);
    }
    before = point;
  }
  return before[1];
}

// Of a task: [{slot, threads, rate, peak, part}] with part = rate / peak, the nearest to its peak first.
export function operating(picture, task) {
  const points = picture.models[task]?.points ?? [];
  const now = picture.topology?.tasks[task];
  if (!now || points.length === 0) return [];
  const found = [];
  for (const [slot, { threads, shares }] of Object.entries(picture.slots)) {
    const own = threads[task];
    if (!own) continue;
    const share = shares?.[task] ?? own / now.threads;
    const rate = known(now.rate_tps) ? now.rate_tps * share : undefined;
    const peak = peakOf(points, own);
    found.push({ slot, threads: own, rate, peak, part: known(rate) && peak > 0 ? rate / peak : undefined });
  }
  return found.sort((a, b) => (b.part ?? -1) - (a.part ?? -1));
}
