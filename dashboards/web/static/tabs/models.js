// Each task's model as a curve of peak rate over threads in one slot, and where its bundles operate on it.
import { draw, keyed, legend, make, mark, say, textTable } from "../core/elements.js";
import { levelOf, LEVELS, operating } from "../core/levels.js";
import { count, figure, known, percent, rate, rateText, some } from "../core/numbers.js";

const BOX = { width: 300, height: 176, left: 44, right: 12, top: 12, bottom: 34 };

export function createModelCurves(section) {
  const figures = make("div", { class: "curves" });
  const none = make("p", { class: "soft" }, "No task of this topology has a model.");
  section
    .querySelector("h2")
    .after(
      legend(
        "Line: the most that so many threads in one slot carry (measured model) · ◆ a bundle of the plan, at what it carries now. The nearest to its peak comes first.",
      ),
    );
  section.querySelector(".view").append(figures, none);
  return (picture) => {
    const tasks = Object.keys(picture.models ?? {}).map((task) => [
      task,
      { picture, spots: operating(picture, task) },
    ]);
    tasks.sort((a, b) => (b[1].spots[0]?.part ?? -1) - (a[1].spots[0]?.part ?? -1));
    keyed(figures, tasks, newCurve, drawCurve);
    none.hidden = tasks.length > 0;
  };
}

function newCurve(_, task) {
  const svg = draw(
    "svg",
    { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", class: "curve" },
    draw("title"),
    draw("g", { class: "axes" }),
    draw("path", { class: "line" }),
    draw("g", { class: "points" }),
    draw("g", { class: "spots" }),
  );
  const points = textTable("threads", ["threads", "peak rate", "CPU", "memory"]);
  const figure = make(
    "figure",
    { "data-task": task },
    make("figcaption", {}, make("b", {}, task), make("span")),
    svg,
    make("details", {}, make("summary", {}, `The model of ${task} as a table`), points.node),
  );
  return Object.assign(figure, { fillPoints: points.fill });
}

function drawCurve(node, { picture, spots }, task) {
  const points = picture.models[task].points;
  const [caption, svg] = node.children;
  const worst = spots[0];
  const level = levelOf(worst?.part);
  mark(node, "data-level", level);
  const text =
    worst && known(worst.part)
      ? ` ${LEVELS[level].glyph} ${worst.slot} carries ${rate(worst.rate)} of at most ${rateText(worst.peak)} (${percent(worst.part)})`
      : " no operating point";
  say(caption.lastChild, text);
  const scale = scaleOf(points, spots);
  const [title, axes, line, dots, marks] = svg.children;
  say(title, `${task}: peak rate over threads in one slot.${text}`);
  const key = `${points.length} ${scale.threads} ${scale.rate}`;
  if (svg.dataset.scale !== key) {
    svg.dataset.scale = key;
    drawStill(axes, line, dots, points, scale);
    node.fillPoints(
      points.map(([n, tps, cpu, memory]) => [n, [count(n), rateText(tps), percent(cpu), percent(memory)]]),
    );
  }
  const entries = spots.map((spot) => [spot.slot, spot]);
  keyed(
    marks,
    entries,
    (spot) =>
      draw("path", { class: "spot", d: "M0 -6L6 0L0 6L-6 0Z", "data-slot": spot.slot }, draw("title")),
    (mine, spot) => {
      mark(
        mine,
        "transform",
        `translate(${scale.x(spot.threads).toFixed(1)} ${scale.y(spot.rate ?? 0).toFixed(1)})`,
      );
      mark(mine, "data-level", levelOf(spot.part));
      say(
        mine.firstChild,
        `${spot.slot}: ${some(spot.threads, "thread")}, ${rateText(spot.rate)}, ${percent(spot.part)} of its peak`,
      );
    },
  );
}

function scaleOf(points, spots) {
  const threads = Math.max(...points.map((point) => point[0]), ...spots.map((spot) => spot.threads));
  const most = roundUp(
    1.05 * Math.max(...points.map((point) => point[1]), ...spots.map((spot) => spot.peak)),
  );
  const wide = BOX.width - BOX.left - BOX.right;
  const high = BOX.height - BOX.top - BOX.bottom;
  return {
    threads,
    rate: most,
    x: (n) => BOX.left + (wide * n) / threads,
    y: (tps) => BOX.top + high * (1 - Math.min(1, tps / most)),
  };
}

function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * unit).find((n) => n >= value) ?? value;
}

function drawStill(axes, line, dots, points, scale) {
  mark(
    line,
    "d",
    `M${scale.x(0)} ${scale.y(0)}` +
      points.map(([n, tps]) => `L${scale.x(n).toFixed(1)} ${scale.y(tps).toFixed(1)}`).join(""),
  );
  dots.replaceChildren(
    ...points.map(([n, tps]) =>
      draw("circle", { cx: scale.x(n).toFixed(1), cy: scale.y(tps).toFixed(1), r: 2.6 }),
    ),
  );
  const end = BOX.height - BOX.bottom;
  const ticks = [0, 0.5, 1].map((part) => part * scale.rate);
  axes.replaceChildren(
    ...ticks.flatMap((tps) => [
      draw("path", { d: `M${BOX.left} ${scale.y(tps)}H${BOX.width - BOX.right}` }),
      draw("text", { x: BOX.left - 5, y: scale.y(tps) + 4, "text-anchor": "end" }, figure(tps)),
    ]),
    ...[...new Set([1, Math.ceil(scale.threads / 2), scale.threads])].map((n) =>
      draw("text", { x: scale.x(n), y: end + 15, "text-anchor": "middle" }, count(n)),
    ),
    draw(
      "text",
      { x: (BOX.left + BOX.width) / 2, y: end + 29, "text-anchor": "middle" },
      "threads in one slot",
    ),
    draw("text", { x: BOX.left + 5, y: BOX.top + 4 }, "rows/s"),
  );
}
