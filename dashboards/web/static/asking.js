// Requests to this page's server; an error comes back as a sentence.
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
