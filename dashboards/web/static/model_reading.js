// How near a task is to its limit: by its load, and each of its bundles by the task's model. Pure.
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

// Whose share a task's load is: the fullest slot with its threads; null when they are busier themselves.
export function loadSlot(picture, name) {
  const { load, busy } = picture.topology.tasks[name];
  if (!known(load) || load <= (busy ?? -1)) return null;
  const own = Object.entries(picture.slots).filter(([, slot]) => slot.threads[name] && known(slot.cpu));
  return own.reduce((most, slot) => (most && most[1].cpu >= slot[1].cpu ? most : slot), null)?.[0] ?? null;
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
