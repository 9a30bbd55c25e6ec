// The page: one stream of pictures, one drawing of the views that are in sight.
import { createCharts } from "./charts.js";
import { Drawing } from "./drawing.js";
import { mark, say, show } from "./elements.js";
import { createEvents } from "./events.js";
import { createFidelity } from "./fidelity.js";
import { createModelCurves } from "./model_curves.js";
import { clock, duration } from "./numbers.js";
import { createOrders } from "./orders.js";
import { createReplay, standing } from "./replay.js";
import { createSlotMap } from "./slot_map.js";
import { Stream } from "./stream.js";
import { createSummary } from "./summary.js";
import { createTasks, createVms } from "./tables.js";
import { prepareTheme } from "./theme.js";
import { createTimeline } from "./timeline.js";
import { createTopology } from "./topology_view.js";
import { createWhatIf } from "./whatif.js";

const part = (id) => document.getElementById(id);
const drawing = new Drawing();
const again = () => drawing.afresh();
const paused = { on: false };

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

prepareViews();
preparePause();
addEventListener("resize", again);

function prepareViews() {
  const summary = part("summary");
  const charts = createCharts(part("charts"));
  drawing.add(summary, createSummary(summary), true);
  drawing.add(part("replay"), createReplay(part("replay"), stream), true);
  drawing.add(part("orders"), createOrders(part("orders")), true);
  drawing.add(part("topology"), createTopology(part("topology")));
  drawing.add(part("slots"), createSlotMap(part("slots")));
  drawing.add(part("charts"), charts.draw);
  drawing.add(part("whatif"), createWhatIf(part("whatif"), summary), true);
  drawing.add(part("fidelity"), createFidelity(part("fidelity"), again));
  drawing.add(part("models"), createModelCurves(part("models"), again));
  drawing.add(part("timeline"), createTimeline(part("timeline"), again));
  drawing.add(part("tasks"), createTasks(part("tasks"), again));
  drawing.add(part("vms"), createVms(part("vms"), again));
  drawing.add(part("events"), createEvents(part("events"), again));
  prepareTheme(part("theme"), () => {
    charts.restyle();
    again();
  });
}

function preparePause() {
  const button = part("pause");
  button.addEventListener("click", () => {
    paused.on = !paused.on;
    paused.at = paused.on ? clock(stream.document?.now) : null;
    mark(button, "aria-pressed", String(paused.on));
    say(button, paused.on ? "Go on" : "Pause");
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
  show(part("pause"), recorded === null); // a recorded run is held where it is
  say(badge, words[shown]);
  mark(badge, "data-state", shown);
  mark(document.body, "data-state", shown);
  mark(document.body, "data-asked", asked);
}
