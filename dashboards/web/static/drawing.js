// When what is drawn: at most twice a second, in a frame of the browser, and only what is in sight.
const DRAW_MS = 500;
const NEAR = "300px"; // so far outside of the window counts as in sight

// A view is {section, draw(document)}. `data-draw-ms` on the body sets another pace, `data-drawn` counts.
export class Drawing {
  constructor() {
    this.views = [];
    this.document = null;
    this.drawnAt = -Infinity;
    this.due = false;
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
    const pace = Number(document.body.dataset.drawMs ?? DRAW_MS);
    const wait = this.drawnAt + pace - performance.now();
    if (wait > 4) setTimeout(() => requestAnimationFrame(() => this.frame()), wait);
    else requestAnimationFrame(() => this.frame());
  }

  frame() {
    this.due = false;
    this.drawnAt = performance.now();
    for (const view of this.views) {
      if (view.shown === this.document || !(view.always || this.seen.get(view.section))) continue;
      view.shown = this.document;
      view.draw(this.document);
    }
    this.drawn += 1;
    document.body.dataset.drawn = this.drawn;
    document.body.dataset.number = this.document.number;
    const took = performance.now() - this.drawnAt;
    document.body.dataset.frameMs = took.toFixed(1);
  }
}
