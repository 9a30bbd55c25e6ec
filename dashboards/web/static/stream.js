// The picture as it changes. A delta that does not follow asks for the whole again; a lost connection is tried again.
import { advanced } from "./document.js";

const SILENT_MS = 2500; // without a word; two ticks a second are usual
const LOOK_MS = 250;
const AGAIN_MS = [500, 1000, 2000, 4000];
const ASK_AGAIN_MS = 1000; // when the whole does not come

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
