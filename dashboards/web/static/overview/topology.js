// The topology: tasks coloured by how near they are to their limit, edges as wide as their rate, with how full their queues are.
import { draw, keyed, legend, make, mark, say, scrolled, show } from "../core/elements.js";
import { levelKeys, levelOf, LEVELS, levelText, loadPlace } from "../core/levels.js";
import { count, figure, flowOf, known, moment, percent, rate, rateText, some } from "../core/numbers.js";

const NODE = { width: 166, height: 90 };
const GAP = { along: 86, across: 26 };
const EDGE_PX = [1.5, 11];
const PILL = 34;
const NARROW = 620; // below it layers go downwards
const SMALLEST = 0.6; // × its size; below it is scrolled

export function createTopology(section) {
  const view = section.querySelector(".view");
  const [said, more] = [make("b"), make("span", { class: "soft" })];
  const first = make("p", { class: "answer", "data-answer": "saturates-first" }, said, " ", more);
  const title = draw("title");
  const edges = draw("g");
  const nodes = draw("g");
  const svg = draw("svg", { role: "img", class: "graph" }, title, edges, nodes);
  const frame = scrolled("Topology, can be scrolled", svg);
  const times = make("span", { class: "event-time small", hidden: "" });
  first.append(times);
  section.querySelector("h2").after(first, key());
  view.append(frame);
  let shape = "";
  let plan = null;
  let sought = "";
  return (picture) => {
    drawFirst(first, said, more, picture);
    const topology = picture.topology;
    drawEventTime(times, topology);
    if (!topology) return;
    const down = view.clientWidth < NARROW;
    const wanted = JSON.stringify([down, topology.order, Object.keys(topology.edges)]);
    if (wanted !== shape) {
      shape = wanted;
      plan = pixels(
        layoutOf(
          topology.order,
          Object.values(topology.edges).map((e) => [e.from, e.to]),
        ),
        down,
      );
      mark(svg, "viewBox", `0 0 ${plan.width} ${plan.height}`);
      svg.style.width = `min(100%, ${plan.width}px)`;
      svg.style.minWidth = `${Math.round(plan.width * SMALLEST)}px`;
    }
    const most = Math.max(1e-9, ...Object.values(topology.edges).map((edge) => edge.rate_tps ?? 0));
    keyed(edges, Object.entries(topology.edges), newEdge, (node, edge) => drawEdge(node, edge, plan, most));
    keyed(
      nodes,
      topology.order.map((name) => [name, topology.tasks[name]]),
      newNode,
      (node, task, name) => drawNode(node, task, name, plan, picture),
    );
    say(title, summary(topology, picture.next_bottleneck));
    const goal = `${picture.next_bottleneck?.task} ${shape}`;
    if (goal !== sought) bringIntoSight(frame, svg, plan, picture.next_bottleneck?.task);
    sought = goal;
  };
}

// In a topology that is larger than its panel.
function bringIntoSight(frame, svg, plan, name) {
  const at = plan.nodes.get(name);
  if (!at) return;
  const scale = svg.clientWidth / plan.width;
  frame.scrollTo(at.x * scale - frame.clientWidth / 2, at.y * scale - frame.clientHeight / 2);
}

const key = () =>
  legend(
    "Load of a task: the part it carries now of what its models say it can carry: ",
    ...levelKeys(),
    " or its queue grows · ▼ and a thick frame: saturates first · wider edge: more rows · its bar: how many of a second's rows wait",
  );

function drawFirst(node, said, more, picture) {
  const found = picture.next_bottleneck;
  mark(node, "data-task", found?.task);
  mark(node, "data-slot", found?.slot);
  if (found === undefined) {
    say(said, picture.plan ? "Nothing is known to saturate." : "There is no plan yet.");
    say(more, picture.plan ? "The models of this topology name no limit." : "");
    return;
  }
  say(said, `${found.task} on ${found.slot} saturates first, at ${rateText(found.at_tps)}.`);
  const cpu = picture.slots[found.slot]?.cpu;
  const slot = known(cpu) ? ` ${found.slot} is at ${percent(cpu)} CPU.` : "";
  say(more, `${roomText(picture.rates.offered_tps, found.at_tps)}${slot}${measuredText(picture, found)}`);
}

// Of the task whose watermark is furthest behind; nothing where no task has event time.
function drawEventTime(node, topology) {
  const timed = (topology?.order ?? []).filter((name) => topology.tasks[name].event_time);
  const behind = (name) => topology.tasks[name].event_time.lag_s ?? -Infinity;
  const last = timed.reduce((a, b) => (behind(b) > behind(a) ? b : a), timed[0]);
  show(node, last !== undefined);
  if (last === undefined) return;
  const others = timed.length > 1 ? ` ${some(timed.length - 1, "task")} more with event time.` : "";
  say(node, `Event time of ${last}: ${eventTimeText(topology.tasks[last].event_time)}.${others}`);
}

const NO_WATERMARK = {
  "none yet": "no watermark yet",
  ended: "its input has ended",
  "no timestamps": "no watermark: no source before it has timestamps",
};

function eventTimeText(now) {
  const { state, watermark, lag_s: lag, held_by: holder, late_rows: late, open_keys: open } = now;
  const at = `watermark ${moment(watermark)}, ${figure(Math.abs(lag))} s ${lag < 0 ? "ahead of" : "behind"} now`;
  const parts = [known(watermark) ? at : (NO_WATERMARK[state] ?? "no watermark")];
  if (holder) parts.push(`${holder} holds it back`);
  parts.push(`${some(late, "row")} late`);
  for (const [source, rows] of Object.entries(now.rows_without_time ?? {})) {
    if (rows) parts.push(`${some(rows, "row")} of ${source} without a time`);
  }
  for (const [source, other] of Object.entries(now.waiting ?? {})) parts.push(`${source} waits for ${other}`);
  if (open) parts.push(`${some(open, "key")} with open windows or timers`);
  return parts.join("; ");
}

// Where what is measured says otherwise than the plan's prediction.
function measuredText(picture, found) {
  const growing = (picture.topology?.order ?? []).filter((name) => picture.topology.tasks[name].grows);
  const others = growing.filter((name) => name !== found.task);
  return others.length ? ` Measured now, rows pile up before ${others.join(", ")}.` : "";
}

function roomText(offered, most) {
  if (!known(offered)) return "The rate that is offered now is not known.";
  if (offered > most) return `${rateText(offered)} are offered: ${rateText(offered - most)} too many.`;
  const left = most > 0 ? ` (${percent(1 - offered / most)})` : "";
  return `Room for ${rateText(most - offered)} more${left}.`;
}

function pixels(layout, down) {
  const long = down ? NODE.height : NODE.width;
  const wide = down ? NODE.width : NODE.height;
  const pitch = { along: long + (down ? 64 : GAP.along), across: wide + GAP.across };
  const point = ({ layer, place }) => {
    const along = 14 + layer * pitch.along + long / 2;
    const across = 22 + place * pitch.across + wide / 2;
    return down ? { x: across, y: along + 8 } : { x: along, y: across };
  };
  const length = 28 + layout.layers * pitch.along - (pitch.along - long);
  const breadth = 36 + layout.places * pitch.across - GAP.across;
  return {
    down,
    width: down ? breadth : length,
    height: down ? length + 16 : breadth,
    nodes: new Map([...layout.nodes].map(([name, at]) => [name, point(at)])),
    lanes: new Map([...layout.lanes].map(([edge, stops]) => [edge, stops.map(point)])),
  };
}

function newNode(task, name) {
  const { width, height } = NODE;
  const part = (tag, attributes) => draw(tag, attributes);
  return draw(
    "g",
    { "data-task": name },
    part("rect", { class: "box", width, height, rx: 9, x: -width / 2, y: -height / 2 }),
    part("rect", {
      class: "track",
      x: -width / 2 + 10,
      y: height / 2 - 13,
      width: width - 20,
      height: 6,
      rx: 3,
    }),
    part("rect", { class: "fill", x: -width / 2 + 10, y: height / 2 - 13, width: 0, height: 6, rx: 3 }),
    part("text", { class: "task", x: -width / 2 + 10, y: -height / 2 + 19 }),
    part("text", { x: -width / 2 + 10, y: -height / 2 + 36 }),
    part("text", { class: "word", x: -width / 2 + 10, y: -height / 2 + 52 }),
    part("text", { x: -width / 2 + 10, y: -height / 2 + 68 }),
    part("text", { class: "first", x: -width / 2 + 4, y: -height / 2 - 6 }),
    part("title"),
  );
}

function drawNode(node, task, name, plan, picture) {
  const { x, y } = plan.nodes.get(name);
  const level = levelOf(task.load, task.grows);
  const isFirst = picture.next_bottleneck?.task === name;
  mark(node, "transform", `translate(${x} ${y})`);
  mark(node, "data-level", level);
  mark(node, "data-busy", known(task.busy) ? task.busy.toFixed(2) : null);
  mark(node, "data-load", known(task.load) ? task.load.toFixed(2) : null);
  mark(node, "data-first", isFirst);
  const [, , fill, title, rates, word, whose, tag, hint] = node.children;
  mark(fill, "width", known(task.load) ? Math.round((NODE.width - 20) * Math.min(1, task.load)) : 0);
  say(title, name.length > 19 ? `${name.slice(0, 18)}…` : name);
  say(rates, `${rateText(flowOf(task))} · ${some(task.threads, "thread")}`);
  say(word, task.unmeasured ? "· not known yet" : level === "none" ? `${LEVELS.none.glyph} ${LEVELS.none.word}` : levelText(task));
  say(whose, task.unmeasured ? "its rows will show it" : loadPlace(task));
  say(tag, isFirst ? "▼ saturates first" : "");
  say(
    hint,
    `${name} (${task.kind}): ${rateText(flowOf(task))}, ${count(task.queue)} rows waiting, threads at work ${percent(task.busy)} of their time`,
  );
}

function newEdge(edge, name) {
  return draw(
    "g",
    { "data-edge": name },
    draw("path", { class: "edge" }),
    draw("rect", { class: "pill", width: PILL, height: 8, rx: 4 }),
    draw("rect", { class: "fill", width: 0, height: 8, rx: 4 }),
    draw("text", { class: "edge-text" }),
    draw("title"),
  );
}

function drawEdge(node, edge, plan, most) {
  const [line, pill, fill, text, hint] = node.children;
  const { path, middle } = pathOf(edge, plan);
  const share = known(edge.rate_tps) ? edge.rate_tps / most : 0;
  const fullness = known(edge.queue) ? Math.min(1, edge.queue / Math.max(1, edge.rate_tps ?? 0)) : null;
  mark(line, "d", path);
  mark(line, "stroke-width", (EDGE_PX[0] + (EDGE_PX[1] - EDGE_PX[0]) * share).toFixed(1));
  mark(node, "data-rate", known(edge.rate_tps) ? Math.round(edge.rate_tps) : null);
  mark(node, "data-level", levelOf(fullness));
  for (const box of [pill, fill]) {
    mark(box, "x", Math.round(middle.x - PILL / 2));
    mark(box, "y", Math.round(middle.y + 8));
  }
  mark(fill, "width", Math.round(PILL * (fullness ?? 0)));
  mark(text, "x", Math.round(middle.x));
  mark(text, "y", Math.round(middle.y + 3));
  say(text, rate(edge.rate_tps));
  say(
    hint,
    `${edge.from} → ${edge.to} (${edge.grouping}): ${rateText(edge.rate_tps)}, ${count(edge.queue)} rows in queues`,
  );
}

function pathOf(edge, plan) {
  const half = plan.down ? NODE.height / 2 : NODE.width / 2;
  const shift = (at, by) => (plan.down ? { x: at.x, y: at.y + by } : { x: at.x + by, y: at.y });
  const points = [
    shift(plan.nodes.get(edge.from), half),
    ...(plan.lanes.get(`${edge.from}>${edge.to}`) ?? []),
    shift(plan.nodes.get(edge.to), -half),
  ];
  let path = `M${points[0].x} ${points[0].y}`;
  for (let n = 1; n < points.length; n += 1) path += curve(points[n - 1], points[n], plan.down);
  const [a, b] = points.slice(points.length > 2 ? 1 : 0, points.length > 2 ? 3 : 2);
  return { path, middle: points.length > 2 ? a : { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 } };
}

function curve(a, b, down) {
  const x = (a.x + b.x) / 2;
  const y = (a.y + b.y) / 2;
  return down ? `C${a.x} ${y} ${b.x} ${y} ${b.x} ${b.y}` : `C${x} ${a.y} ${x} ${b.y} ${b.x} ${b.y}`;
}

function summary(topology, first) {
  const levels = Object.values(topology.tasks).map((task) => levelOf(task.load, task.grows));
  const much = levels.filter((level) => level === "limit").length;
  const next = first ? `; ${first.task} saturates first` : "";
  return `${topology.name}: ${some(topology.order.length, "task")}, ${much} near their limit${next}. The table of tasks says the same.`;
}

// Places for the nodes of a topology: layers along the edges, few crossings, lanes for edges that skip layers. Pure.
const SWEEPS = 6;

// order: names; edges: [from, to]. → {nodes: Map name → {layer, place}, lanes: Map "a>b" → [{layer, place}], layers, places}
// A place is a number of rows from the top of the picture; layers are centred against each other.
function layoutOf(order, edges) {
  const forward = withoutCycles(order, edges);
  const rank = ranksOf(order, forward);
  const layers = [];
  const put = (name, layer) => (layers[layer] ??= []).push(name);
  for (const name of order) put(name, rank.get(name));
  const links = [];
  const stops = new Map();
  for (const [from, to] of forward) stops.set(`${from}>${to}`, stretched(from, to, rank, put, links));
  const joined = neighbours(links);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) sweepOver(layers, joined, sweep % 2 === 0);
  return placed(layers, order, stops);
}

// An edge back to something earlier in the order would make a circle: it is drawn, but places nothing.
function withoutCycles(order, edges) {
  const at = new Map(order.map((name, n) => [name, n]));
  return edges.filter(([from, to]) => at.has(from) && at.has(to) && at.get(from) < at.get(to));
}

function ranksOf(order, edges) {
  const rank = new Map(order.map((name) => [name, 0]));
  for (let changed = true, turns = 0; changed && turns <= order.length; turns += 1) {
    changed = false;
    for (const [from, to] of edges) {
      if (rank.get(to) > rank.get(from)) continue;
      rank.set(to, rank.get(from) + 1);
      changed = true;
    }
  }
  return rank;
}

function stretched(from, to, rank, put, links) {
  const stops = [];
  let last = from;
  for (let layer = rank.get(from) + 1; layer < rank.get(to); layer += 1) {
    const stop = `${from}>${to}@${layer}`;
    put(stop, layer);
    links.push([last, stop]);
    stops.push(stop);
    last = stop;
  }
  links.push([last, to]);
  return stops;
}

function neighbours(links) {
  const joined = new Map();
  const of = (name) => joined.get(name) ?? joined.set(name, { before: [], after: [] }).get(name);
  for (const [from, to] of links) {
    of(from).after.push(to);
    of(to).before.push(from);
  }
  return joined;
}

// Each layer in the order of the mean place of its neighbours in the layer before (or after) it.
function sweepOver(layers, joined, down) {
  const steps = layers.map((_, n) => (down ? n : layers.length - 1 - n)).slice(1);
  for (const n of steps) {
    const place = new Map(layers[down ? n - 1 : n + 1].map((name, at) => [name, at]));
    const mean = new Map(
      layers[n].map((name, at) => {
        const near = (joined.get(name)?.[down ? "before" : "after"] ?? []).filter((other) =>
          place.has(other),
        );
        return [
          name,
          near.length ? near.reduce((sum, other) => sum + place.get(other), 0) / near.length : at,
        ];
      }),
    );
    layers[n].sort((a, b) => mean.get(a) - mean.get(b));
  }
}

function placed(layers, order, stops) {
  const places = Math.max(...layers.map((layer) => layer.length));
  const at = new Map();
  layers.forEach((names, layer) => {
    const top = (places - names.length) / 2;
    names.forEach((name, n) => at.set(name, { layer, place: top + n }));
  });
  return {
    nodes: new Map(order.map((name) => [name, at.get(name)])),
    lanes: new Map([...stops].map(([edge, names]) => [edge, names.map((name) => at.get(name))])),
    layers: layers.length,
    places,
  };
}
