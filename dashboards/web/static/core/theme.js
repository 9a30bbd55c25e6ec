// Light, dark or as the system has it; the choice is remembered by the browser.
const KEY = "headgate-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function prepareTheme(select, changed) {
  const root = document.documentElement;
  const apply = () => {
    root.dataset.theme = select.value;
    root.dataset.shown = isDark() ? "dark" : "light";
  };
  select.value = remembered() ?? "auto";
  apply();
  select.addEventListener("change", () => {
    try {
      localStorage.setItem(KEY, select.value);
    } catch {} // a browser that keeps nothing forgets it
    apply();
    changed();
  });
  system.addEventListener("change", () => {
    apply();
    changed();
  });
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "dark" || (chosen === "auto" && system.matches);
}

// A colour of the page by its name, for what is not drawn by a style sheet.
export const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function remembered() {
  try {
    const value = localStorage.getItem(KEY);
    return ["auto", "light", "dark"].includes(value) ? value : null;
  } catch {
    return null;
  }
}
