// How near each bundle of a task is to its limit, by the task's model. Pure.
import { known } from "./numbers.js";

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
