"use strict";
// Light or dark: as the system says, until the button is pressed; then as it was left.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const remember = (theme) => { try { localStorage.setItem("sointer-theme", theme); } catch { /* not allowed here */ } };
  const remembered = () => { try { return localStorage.getItem("sointer-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => button.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    label();
  });
  label();
})();
