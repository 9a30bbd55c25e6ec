// Places for the nodes of a topology: layers along the edges, few crossings, lanes for edges that skip layers. Pure.
const SWEEPS = 6;

// order: names; edges: [from, to]. → {nodes: Map name → {layer, place}, lanes: Map "a>b" → [{layer, place}], layers, places}
// A place is a number of rows from the top of the picture; layers are centred against each other.
export function layoutOf(order, edges) {
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
