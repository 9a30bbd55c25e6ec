// How numbers and times are written. What is not known is N/A.
export const NONE = "N/A";

export const known = (value) => typeof value === "number" && Number.isFinite(value);

function fixed(value, digits) {
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return text.startsWith("-") ? (/[1-9]/.test(text) ? `−${text.slice(1)}` : text.slice(1)) : text;
}

// Three digits that matter: 0.042, 4.2, 42, 4,200.
export function figure(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  return fixed(value, Number.isInteger(value) || size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

export const rate = (value) =>
  known(value) ? fixed(value, Math.abs(value) < 10 && value !== 0 ? 1 : 0) : NONE;
export const rateText = (value) => (known(value) ? `${rate(value)} rows/s` : NONE);
export const count = (value) => (known(value) ? fixed(value, 0) : NONE);
export const percent = (value) => (known(value) ? `${fixed(100 * value, 0)}\u00a0%` : NONE); // stays in one line
export const money = (value) => (known(value) ? `$${fixed(value, value < 10 ? 2 : 0)}` : NONE);

// Of VMs that have a price; those of this machine have none.
export const price = (usdPerHour) => (usdPerHour > 0 ? `${money(usdPerHour)} per hour` : "no price");

export function signed(value, unit = "", digits = 0) {
  if (!known(value)) return NONE;
  const text = fixed(Math.abs(value), digits);
  return /^[0.]+$/.test(text) ? `±${text}${unit}` : `${value < 0 ? "−" : "+"}${text}${unit}`;
}

export function milliseconds(value) {
  if (!known(value)) return NONE;
  if (Math.abs(value) >= 10000) return `${fixed(value / 1000, 0)} s`;
  if (Math.abs(value) >= 1000) return `${fixed(value / 1000, 1)} s`;
  return `${fixed(value, Math.abs(value) < 10 && value !== 0 ? 1 : 0)} ms`;
}

export function duration(seconds) {
  if (!known(seconds)) return NONE;
  const whole = Math.max(0, Math.round(seconds));
  if (seconds < 10) return `${fixed(seconds, 1)} s`;
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

// Of an ISO time or of seconds since 1970; always UTC.
export function clock(time) {
  const date = new Date(known(time) ? time * 1000 : (time ?? NaN));
  return Number.isNaN(date.getTime()) ? NONE : date.toISOString().slice(11, 19);
}

// `2026-09-21 14:13:20 UTC` of seconds since 1970: event time may be of any day. The number where it is no date.
const DATES_S = [-62_135_596_800, 253_402_300_800]; // the years 1 to 9999
export function moment(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < DATES_S[0] || seconds >= DATES_S[1]) return `${count(seconds)} s since 1970`;
  return `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

// What a task takes in; of a source, which takes in nothing, what it gives.
export const flowOf = (task) =>
  task.kind === "source" ? (task.rate_out_tps ?? task.rate_tps) : task.rate_tps;

export const some = (number, word, many = `${word}s`) => `${count(number)} ${number === 1 ? word : many}`;
