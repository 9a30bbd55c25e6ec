// What comes from the page's server: the stream of snapshots and deltas, and answers to requests.
const HISTORY_S = 600;
const SILENT_MS = 2500; // without a word; two ticks a second are usual
const LOOK_MS = 250;
const AGAIN_MS = [500, 1000, 2000, 4000];
const ASK_AGAIN_MS = 1000; // when the whole does not come

// A delta that does not follow asks for a new snapshot; a lost connection is tried again.
// heard(document) on every change; told() when the state or its reason changes:
// waiting (for the first picture), live, stale.
export class Stream {
  constructor(address, heard, told) {
    Object.assign(this, { address, heard, told });
    this.document = null;
    this.state = "waiting";
    this.why = "";
    this.heardAt = performance.now();
    this.tries = 0;
    this.asked = 0; // how often the whole was asked for
    this.askedAt = null; // the whole was asked for then, and has not come
    this.connect();
    setInterval(() => this.look(), LOOK_MS);
  }

  connect() {
    const socket = new WebSocket(this.address);
    this.socket = socket;
    socket.addEventListener("message", (event) => this.receive(JSON.parse(event.data)));
    socket.addEventListener("close", () => {
      const wait = AGAIN_MS[Math.min(this.tries, AGAIN_MS.length - 1)];
      this.tries += 1;
      this.become("stale", "the connection is lost; trying again");
      setTimeout(() => this.connect(), wait * (0.8 + 0.4 * Math.random()));
    });
  }

  receive(message) {
    if (message.schema === "headgate/stale/v1") {
      this.become("stale", message.why);
      return;
    }
    this.heardAt = performance.now();
    this.tries = 0;
    if (message.schema === "headgate/snapshot/v1") {
      this.askedAt = null;
      this.document = message;
    } else if (message.schema === "headgate/delta/v1") {
      if (this.askedAt !== null || this.document === null) return; // the whole is on its way
      const after = advanced(this.document, message);
      if (after === null) {
        this.ask();
        return;
      }
      this.document = after;
    } else return;
    this.become("live", "");
    this.heard(this.document);
  }

  ask() {
    this.asked += 1;
    this.askedAt = performance.now();
    this.send({ want: "snapshot" });
  }

  send(wish) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(wish));
  }

  look() {
    const now = performance.now();
    if (this.askedAt !== null && now - this.askedAt > ASK_AGAIN_MS) this.ask();
    if (this.state === "live" && now - this.heardAt > SILENT_MS) {
      this.become("stale", "nothing was heard for some seconds");
    }
  }

  become(state, why) {
    if (state === this.state && why === this.why) return;
    if (state === "stale" && this.state === "stale" && why === "") return;
    Object.assign(this, { state, why });
    this.told();
  }
}

// A snapshot and what changes it: `headgate/delta/v1` is a JSON merge patch, and rows for the history's end.
// The document with the patch (RFC 7386); neither is changed, and what the patch does not name stays the same object.
export function patched(document, patch) {
  const after = { ...document };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete after[key];
    else if (isObject(value)) after[key] = patched(isObject(after[key]) ? after[key] : {}, value);
    else after[key] = value;
  }
  return after;
}

// The snapshot after the delta; null when it does not follow: something is missing in between.
export function advanced(document, delta) {
  if (delta.boot !== document.boot || delta.number !== document.number + 1) return null;
  const after = patched(document, delta.patch);
  after.number = delta.number;
  after.now = delta.now;
  if (delta.history?.time?.length) after.history = appended(document.history, delta.history);
  return after;
}

export function appended(history, rows) {
  const before = history.time ?? [];
  const since = rows.time[rows.time.length - 1] - HISTORY_S;
  let cut = 0;
  while (cut < before.length && before[cut] <= since) cut += 1;
  return Object.fromEntries(
    Object.entries(rows).map(([name, values]) => [name, [...(history[name] ?? []).slice(cut), ...values]]),
  );
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// A request; an error comes back as a sentence.
export async function ask(path, body, token) {
  const headers = { "content-type": "application/json" };
  if (token) headers["x-headgate-token"] = token;
  let answer;
  try {
    answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Error("the server of this page does not answer");
  }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(sentence(data.error) ?? `the server answers ${answer.status}`);
  return data;
}

function sentence(error) {
  if (!error) return null;
  const faults = error.faults?.length ? `: ${error.faults.join("; ")}` : "";
  const cause = error.cause ? ` (${error.cause})` : "";
  return `${error.what}${cause}${faults}${error.hint ? ` – ${error.hint}` : ""}`;
}
