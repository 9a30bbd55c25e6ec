// When what is drawn: at most twice a second, in frames of the browser, and only what is in sight.
const DRAW_MS = 500;
const FRAME_MS = 20; // of one frame; longer work is spread over several
const REST = 8; // the drawing rests so many times as long as it took: it never takes more than a part of a core
const SLOWEST_MS = 1000;
const NEAR = "300px"; // so far outside of the window counts as in sight

// A view is {section, draw(document)}. `data-draw-ms` on the body sets another pace, `data-drawn` counts.
export class Drawing {
  constructor() {
    this.views = [];
    this.document = null;
    this.drawnAt = -Infinity;
    this.due = false;
    this.tookMs = 0; // by the last picture
    this.drawn = 0;
    this.seen = new Map(); // section → is it in sight
    this.observer = new IntersectionObserver((entries) => this.moved(entries), { rootMargin: NEAR });
    document.addEventListener("visibilitychange", () => this.soon());
  }

  add(section, draw, always = false) {
    this.views.push({ section, draw, always, shown: null });
    if (always) return;
    this.seen.set(section, false);
    this.observer.observe(section);
  }

  moved(entries) {
    for (const entry of entries) this.seen.set(entry.target, entry.isIntersecting);
    this.now();
  }

  show(picture) {
    this.document = picture;
    this.soon();
  }

  // Draw everything in sight again, for another reason than a new document.
  afresh() {
    for (const view of this.views) view.shown = null;
    this.now();
  }

  now() {
    this.drawnAt = -Infinity;
    this.soon();
  }

  soon() {
    if (this.due || this.document === null || document.hidden) return;
    this.due = true;
    const wait = this.drawnAt + this.pace() - performance.now();
    if (wait > 4) setTimeout(() => requestAnimationFrame(() => this.frame()), wait);
    else requestAnimationFrame(() => this.frame());
  }

  pace() {
    const set = document.body.dataset.drawMs;
    return set === undefined ? Math.min(SLOWEST_MS, Math.max(DRAW_MS, REST * this.tookMs)) : Number(set);
  }

  frame() {
    this.due = false;
    this.drawnAt = performance.now();
    this.tookMs = 0;
    this.rest(0, this.document);
  }

  // The views from the n-th on; what does not fit into this frame is drawn in the next.
  rest(n, picture) {
    const began = performance.now();
    while (n < this.views.length && performance.now() - began < FRAME_MS) {
      const view = this.views[n];
      n += 1;
      if (view.shown === picture || !(view.always || this.seen.get(view.section))) continue;
      view.shown = picture;
      view.draw(picture);
      view.section.dataset.shown = "";
    }
    const took = performance.now() - began;
    this.tookMs += took;
    document.body.dataset.frameMs = took.toFixed(1);
    if (n < this.views.length) requestAnimationFrame(() => this.rest(n, picture));
    else this.done(picture);
  }

  done(picture) {
    if (this.drawn === 0) performance.mark("first-picture");
    this.drawn += 1;
    document.body.dataset.drawn = this.drawn;
    document.body.dataset.number = picture.number;
    document.body.dataset.tookMs = this.tookMs.toFixed(1);
  }
}
