// A snapshot and what changes it: `headgate/delta/v1` is a JSON merge patch, and rows for the history's end.
const HISTORY_S = 600;

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
