// The form in front of a page that other machines reach: the token, from the address or typed in, for a cookie.
const KEY = "headgate-token"; // as in orders.js
const told = document.getElementById("told");

function tokenKnown() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    return given ?? sessionStorage.getItem(KEY);
  } catch {
    return given;
  }
}

async function enter(token) {
  const asked = { method: "POST", headers: { "x-headgate-token": token }, cache: "no-store" };
  const answer = await fetch("/api/enter", asked).catch(() => null);
  if (answer === null) return "The server of this page does not answer.";
  if (!answer.ok) return "This is not its token.";
  const page = await fetch("/", { cache: "no-store" }).catch(() => null);
  if (!page?.ok) return "This browser keeps no cookie of this page.";
  try {
    sessionStorage.setItem(KEY, token); // the page itself writes with it
  } catch {} // then it asks for it again
  location.reload();
  return "";
}

document.getElementById("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  told.textContent = await enter(document.getElementById("token").value.trim());
});

const known = tokenKnown();
if (known) told.textContent = await enter(known);
