// What happened, newest first; a word in the field above leaves only the lines that hold it.
import { keyed, make, mark, say, scrolled } from "./elements.js";
import { clock, count } from "./numbers.js";

export function createEvents(section, redraw) {
  const field = make("input", { type: "search", id: "events-filter", autocomplete: "off", oninput: redraw });
  const list = make("ol", { class: "events" });
  const none = make("p", { class: "soft" });
  section
    .querySelector(".view")
    .append(
      make("label", { class: "small", for: "events-filter" }, "Only with "),
      field,
      scrolled("Events, newest first", list, " tall"),
      none,
    );
  let shown = null;
  let word = null;
  return (picture) => {
    const wanted = field.value.trim().toLowerCase();
    if (shown === picture.events && word === wanted) return;
    [shown, word] = [picture.events, wanted];
    const every = Object.entries(picture.events ?? {});
    const found = every
      .filter(([, { kind, text }]) => `${kind} ${text}`.toLowerCase().includes(wanted))
      .sort((a, b) => Number(b[0]) - Number(a[0]));
    keyed(list, found, newEvent, drawEvent);
    say(
      none,
      found.length ? `${count(found.length)} of the last ${count(every.length)}` : "No event holds this.",
    );
  };
}

function newEvent(_, number) {
  return make("li", { "data-event": number }, make("time"), make("b"), make("span"));
}

function drawEvent(node, event) {
  const [time, kind, text] = node.children;
  mark(node, "data-kind", event.kind);
  mark(time, "datetime", event.time);
  say(time, clock(event.time));
  say(kind, event.kind.replaceAll("_", " "));
  say(text, event.text);
}
