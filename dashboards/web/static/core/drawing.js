// When what is drawn: at most twice a second, in frames of the browser, and only what is open.
const DRAW_MS = 500;
const FRAME_MS = 20; // of one frame; longer work is spread over several
const REST = 8; // the drawing rests so many times as long as it took: it never takes more than a part of a core
const SLOWEST_MS = 1000;
const CLOSED_MS = 10_000; // between two drawings of tabs that are closed, so that a search finds what is in them
const FIRST_CLOSED_MS = 1500;

// A view is {section, draw(document)}. `data-draw-ms` on the body sets another pace, `data-drawn` counts.
export class Drawing {
  constructor() {
    this.views = [];
    this.document = null;
    this.drawnAt = -Infinity;
    this.closedDue = performance.now() + FIRST_CLOSED_MS;
    this.due = false;
    this.tookMs = 0; // by the last picture
    this.drawn = 0;
    document.addEventListener("visibilitychange", () => this.soon());
  }

  add(section, draw) {
    this.views.push({ section, draw, shown: null });
    this.now();
  }

  show(picture) {
    this.document = picture;
    this.soon();
  }

  // Draw everything that is open again, for another reason than a new document.
  afresh() {
    for (const view of this.views) view.shown = null;
    this.now();
  }

  // Draw everything at once, open or not: before a print or a search.
  whole() {
    for (const view of this.views) if (this.document !== null) this.one(view, this.document);
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
    const closedToo = this.drawnAt > this.closedDue;
    if (closedToo) this.closedDue = this.drawnAt + CLOSED_MS;
    const due = this.views.filter(
      ({ section }) => closedToo || section.closest("[hidden='until-found']") === null,
    );
    this.rest(due, this.document);
  }

  // What does not fit into this frame is drawn in the next.
  rest(due, picture) {
    const began = performance.now();
    while (due.length > 0 && performance.now() - began < FRAME_MS) this.one(due.shift(), picture);
    const took = performance.now() - began;
    this.tookMs += took;
    document.body.dataset.frameMs = took.toFixed(1);
    if (due.length > 0) requestAnimationFrame(() => this.rest(due, picture));
    else this.done(picture);
  }

  one(view, picture) {
    if (view.shown === picture) return;
    view.shown = picture;
    view.draw(picture);
    view.section.dataset.shown = "";
  }

  done(picture) {
    if (this.drawn === 0) performance.mark("first-picture");
    this.drawn += 1;
    document.body.dataset.drawn = this.drawn;
    document.body.dataset.number = picture.number;
    document.body.dataset.tookMs = this.tookMs.toFixed(1);
  }
}
