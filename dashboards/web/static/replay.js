// Over a trace: where in the run the picture is, how fast it goes on, and the way to another place of it.
import { make, mark, say } from "./core/elements.js";
import { duration } from "./core/numbers.js";

const SPEEDS = [0.5, 1, 2, 5, 10, 50];
const SETTLE_MS = 120;

// Of a recorded run that is shown: `replay`, `paused` or `ended`; of a running one null.
export function standing(picture) {
  const replay = picture?.replay;
  if (!replay) return null;
  return replay.ended ? "ended" : replay.paused ? "paused" : "replay";
}

export function createReplay(section, stream) {
  const play = make("button", { type: "button", id: "replay-play" });
  const scrubber = make("input", {
    type: "range",
    id: "replay-at",
    min: 0,
    step: "any",
    "aria-label": "Place in the recorded run",
  });
  const at = make("output", { for: "replay-at" });
  const speed = make(
    "select",
    { id: "replay-speed" },
    ...SPEEDS.map((times) => make("option", { value: times }, `${times} ×`)),
  );
  section.append(
    make("b", {}, "Recorded run"),
    play,
    scrubber,
    at,
    make("label", { class: "small" }, "Speed ", speed),
  );
  let replay = null;
  let held = null; // the place that is being chosen
  let timer = null;
  const place = () => say(at, `${duration(held ?? replay.at_s)} of ${duration(replay.length_s)}`);
  scrubber.addEventListener("input", () => {
    held = Number(scrubber.value);
    place();
    clearTimeout(timer);
    timer = setTimeout(() => {
      stream.send({ seek_s: held });
      held = null;
    }, SETTLE_MS);
  });
  play.addEventListener("click", () => {
    stream.send(replay.ended ? { seek_s: 0, paused: false } : { paused: replay.paused !== true });
  });
  speed.addEventListener("change", () => stream.send({ speed: Number(speed.value) }));
  return (picture) => {
    replay = picture.replay ?? null;
    section.hidden = replay === null;
    if (replay === null) return;
    mark(scrubber, "max", replay.length_s);
    mark(section, "data-at", replay.at_s.toFixed(1));
    if (held === null) scrubber.value = replay.at_s;
    mark(scrubber, "aria-valuetext", `${duration(replay.at_s)} of ${duration(replay.length_s)}`);
    place();
    say(play, { ended: "Again", paused: "Play", replay: "Pause" }[standing(picture)]);
    if (document.activeElement !== speed) chooseSpeed(speed, replay.speed);
  };
}

function chooseSpeed(select, times) {
  if (!SPEEDS.includes(times) && ![...select.options].some((option) => Number(option.value) === times)) {
    select.append(make("option", { value: times }, `${times} ×`));
  }
  if (select.value !== String(times)) select.value = String(times);
}
