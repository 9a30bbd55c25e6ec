// The page: one stream of snapshots, an overview on one screen, and everything else in tabs.
import { Drawing } from "./core/drawing.js";
import { mark, say, show } from "./core/elements.js";
import { clock, duration } from "./core/numbers.js";
import { Stream } from "./core/server.js";
import { prepareTheme } from "./core/theme.js";
import { createOrders } from "./orders.js";
import { createCharts } from "./overview/charts.js";
import { createHealth } from "./overview/health.js";
import { createSlotMap } from "./overview/slots.js";
import { createTopology } from "./overview/topology.js";
import { createReplay, standing } from "./replay.js";

// Loaded when they are opened, or when the page has nothing else to do: a search and a print want all of them.
const TABS = {
  history: async () => (await import("./tabs/figures.js")).createHistory,
  figures: async () => (await import("./tabs/figures.js")).createFigures,
  whatif: async () => (await import("./tabs/whatif.js")).createWhatIf,
  fidelity: async () => (await import("./tabs/fidelity.js")).createFidelity,
  models: async () => (await import("./tabs/models.js")).createModelCurves,
  timeline: async () => (await import("./tabs/timeline.js")).createTimeline,
  tasks: async () => (await import("./tabs/tables.js")).createTasks,
  vms: async () => (await import("./tabs/tables.js")).createVms,
  events: async () => (await import("./tabs/tables.js")).createEvents,
};

const part = (id) => document.getElementById(id);
const drawing = new Drawing();
const again = () => drawing.afresh();
const paused = { on: false };
const loaded = new Set();

const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/stream`;
const stream = new Stream(
  address,
  (picture) => {
    mark(document.body, "data-heard", picture.number);
    if (!paused.on) drawing.show(picture);
    tellState();
  },
  tellState,
);

drawing.add(part("health"), createHealth(part("health")));
drawing.add(part("replay"), createReplay(part("replay"), stream));
drawing.add(part("orders"), createOrders(part("orders")));
drawing.add(part("topology"), createTopology(part("topology")));
drawing.add(part("slots"), createSlotMap(part("slots")));
drawing.add(part("charts"), createCharts(part("charts")));
prepareTheme(part("theme"), again);
preparePause();
prepareTabs();
preparePrint();
addEventListener("resize", again);

function prepareTabs() {
  const open = () => openTab(location.hash.slice(1));
  addEventListener("hashchange", open);
  for (const tab of document.querySelectorAll(".tab")) {
    tab.addEventListener("beforematch", () => openTab(tab.id));
  }
  openTab("overview");
  open();
  const idle = globalThis.requestIdleCallback ?? setTimeout;
  idle(() => Object.keys(TABS).forEach(load));
}

// The tab that holds the element of this id; another id changes nothing.
function openTab(id) {
  const wanted = part(id)?.closest(".tab");
  if (!wanted) return;
  load(id);
  for (const tab of document.querySelectorAll(".tab"))
    mark(tab, "hidden", tab === wanted ? null : "until-found");
  for (const link of part("tabs").children) {
    mark(link, "aria-current", wanted.contains(part(link.hash.slice(1))) ? "page" : null);
  }
  drawing.now();
}

async function load(id) {
  if (!(id in TABS) || loaded.has(id)) return;
  loaded.add(id);
  try {
    const create = await TABS[id]();
    part(id).querySelector(".view").replaceChildren();
    drawing.add(part(id), create(part(id), again));
    mark(part(id), "data-loaded", true);
  } catch (error) {
    loaded.delete(id); // tried again when it is opened again
    say(part(id).querySelector(".view"), `This could not be loaded: ${error.message}. Try: reload the page.`);
  }
}

// A print and the browser's search get all of the page as it is now.
function preparePrint() {
  const shown = () => document.querySelector(".tab:not([hidden])");
  let before = null;
  addEventListener("beforeprint", () => {
    before = shown();
    mark(document.body, "data-printing", true);
    for (const tab of document.querySelectorAll(".tab")) tab.hidden = false;
    drawing.whole();
  });
  addEventListener("afterprint", () => {
    mark(document.body, "data-printing", false);
    openTab(before.id);
    again();
  });
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "f") drawing.whole();
  });
}

function preparePause() {
  const button = part("pause");
  button.addEventListener("click", () => {
    paused.on = !paused.on;
    paused.at = paused.on ? clock(stream.document?.now) : null;
    mark(button, "aria-pressed", String(paused.on));
    say(button, paused.on ? "Resume" : "Pause");
    tellState();
    if (!paused.on && stream.document !== null) drawing.show(stream.document);
  });
}

function tellState() {
  const badge = part("feed-state");
  const { state, why, asked, document: picture } = stream;
  const recorded = standing(picture);
  const stage = picture?.stage;
  const over = stage === "over" || (stage === "leaving" && state === "stale");
  const shown = over ? "over" : state !== "live" ? state : paused.on ? "paused" : (recorded ?? "live");
  const at = recorded ? duration(picture.replay.at_s) : paused.at;
  const words = {
    waiting: "waiting for a picture",
    live: "● live",
    paused: `❚❚ paused at ${at}`,
    replay: "▶ recorded run",
    ended: "■ ended: this was the last moment of the run",
    over: "■ over: this was the run's last moment",
    stale: `▲ stale: ${why}`,
  };
  show(part("pause"), recorded === null); // a recorded run has its own
  say(badge, words[shown]);
  mark(badge, "data-state", shown);
  mark(document.body, "data-state", shown);
  mark(document.body, "data-asked", asked);
}
