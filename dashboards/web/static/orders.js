// Writing: needs the token, and always goes proposal → diff → apply. Without a token the page only reads.
import { ask } from "./core/server.js";
import { diffOf, make, mark, say } from "./core/elements.js";
import { rate } from "./core/numbers.js";

const KEY = "headgate-token";

export function createOrders(place) {
  const dialog = newDialog();
  const own = { dialog, token: tokenGiven(), picture: null };
  const reads = make("span", { class: "soft", id: "read-only" }, "read-only");
  const unlock = make(
    "button",
    { type: "button", id: "unlock", onclick: () => askToken(own, refresh) },
    "Token…",
  );
  const setRate = make(
    "button",
    { type: "button", id: "set-rate", onclick: () => askRate(own) },
    "Set rate…",
  );
  const approve = make(
    "button",
    {
      type: "button",
      id: "approve",
      onclick: () => propose(own, "/api/approve", { plan: own.picture.proposal.id }),
    },
    "Look at the proposal…",
  );
  const stop = make(
    "button",
    { type: "button", id: "stop", onclick: () => propose(own, "/api/stop", {}) },
    "Stop…",
  );
  place.append(reads, unlock, setRate, approve, stop);
  document.body.append(dialog.node);
  const refresh = () => {
    const writes = own.token !== null && own.picture?.origin === "controller";
    const live = own.picture?.origin === "controller";
    reads.hidden = writes;
    unlock.hidden = writes || !live;
    setRate.hidden = stop.hidden = !writes;
    approve.hidden = !writes || !own.picture?.proposal;
    mark(place, "data-writes", writes ? "yes" : "no");
  };
  return (picture) => {
    own.picture = picture;
    refresh();
  };
}

// From the address's #token=…, which is then taken out of it; kept for this tab alone.
function tokenGiven() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) {
      history.replaceState(null, "", location.pathname + location.search);
      sessionStorage.setItem(KEY, given);
    }
    return given ?? sessionStorage.getItem(KEY);
  } catch {
    return given;
  }
}

function newDialog() {
  const title = make("h2", { id: "dialog-title" });
  const body = make("div", { class: "dialog-body" });
  const told = make("p", { class: "told", role: "alert" });
  const go = make("button", { type: "submit", class: "main" });
  const cancel = make("button", { type: "button", onclick: () => node.close() }, "Cancel");
  const form = make(
    "form",
    { method: "dialog" },
    title,
    body,
    told,
    make("p", { class: "buttons" }, cancel, go),
  );
  const node = make("dialog", { id: "order", "aria-labelledby": "dialog-title" }, form);
  return { node, form, title, body, told, go, cancel };
}

// One step of the dialog: act() is called on submit; what it throws is shown.
function step({ dialog }, state, title, parts, go, act) {
  const { node, form } = dialog;
  mark(node, "data-step", state);
  say(dialog.title, title);
  dialog.body.replaceChildren(...parts);
  say(dialog.told, "");
  dialog.go.hidden = go === null;
  say(dialog.go, go ?? "");
  say(dialog.cancel, go === null ? "Close" : "Cancel");
  form.onsubmit = async (event) => {
    event.preventDefault();
    dialog.go.disabled = true;
    try {
      await act?.();
    } catch (error) {
      say(dialog.told, `Refused: ${error.message}.`);
    }
    dialog.go.disabled = false;
  };
  if (!node.open) node.showModal();
}

function askToken(own, refresh) {
  const field = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
  step(
    own,
    "token",
    "Token",
    [
      make("p", {}, "Changing the run needs the token that was printed when this page was started."),
      make("label", { for: "token" }, "Token "),
      field,
    ],
    "Use it",
    () => {
      own.token = field.value.trim();
      try {
        sessionStorage.setItem(KEY, own.token);
      } catch {} // then it is forgotten with the page
      own.dialog.node.close();
      refresh();
    },
  );
}

function askRate(own) {
  const now = own.picture.rates.offered_tps;
  const field = make("input", {
    type: "number",
    id: "new-rate",
    min: 0,
    step: "any",
    required: true,
    value: now ?? "",
  });
  step(
    own,
    "rate",
    "Set the rate of the built-in source",
    [
      make("p", {}, `${rate(now)} rows/s are offered now. Nothing changes before you have seen what would.`),
      make("label", { for: "new-rate" }, "New rate in rows/s "),
      field,
    ],
    "Propose",
    () => propose(own, "/api/rate", { rate_tps: Number(field.value) }),
  );
}

async function propose(own, path, body) {
  let found;
  try {
    found = await ask(path, body, own.token);
  } catch (error) {
    if (own.dialog.node.open) throw error;
    step(own, "refused", "Refused", [make("p", {}, `${error.message}.`)], null);
    return;
  }
  const parts = [
    make("p", {}, `This would ${found.summary}.`),
    diffOf(found.diff),
    make("p", { class: "soft" }, `Proposal ${found.id}; it waits ${found.expires_s / 60} minutes.`),
  ];
  step(own, "diff", "What would change", parts, "Apply", async () => {
    const done = await ask("/api/apply", { id: found.id }, own.token);
    step(own, "done", "Done", [make("p", {}, `Done: ${done.summary}.`)], null);
  });
}
