"use strict";
// One box to search in several lists of names, by mouse or by keys (a combobox with a list of options).
// kinds: [{ kind, names, link(i) }], in the order of the results; pick(link) is called with what was chosen.
const sointerSearch = (input, results, kinds, pick) => {
  const { make } = sointerExplanation, MOST = 8;
  const lower = kinds.map(({ names }) => names.map((name) => name.toLowerCase()));
  let active = -1;

  // Names that begin with the text first, then short ones.
  const matches = (names, text) => {
    const found = [];
    names.forEach((name, i) => { const at = name.indexOf(text); if (at >= 0) found.push([at > 0, name.length, i]); });
    return found.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]).slice(0, MOST).map(([, , i]) => i);
  };
  const options = () => [...results.querySelectorAll('[role="option"]')];
  const activate = (i) => {
    const all = options();
    active = all.length ? (i + all.length) % all.length : -1;
    all.forEach((option, j) => option.setAttribute("aria-selected", String(j === active)));
    if (active < 0) input.removeAttribute("aria-activedescendant");
    else {
      input.setAttribute("aria-activedescendant", all[active].id);
      all[active].scrollIntoView({ block: "nearest" });
    }
  };
  const open = (isOpen) => {
    results.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) input.removeAttribute("aria-activedescendant");
  };
  const choose = (option) => {
    input.value = "";
    input.blur();
    pick(option.dataset.href);
  };
  const find = () => {
    const text = input.value.trim().toLowerCase(), parts = [];
    kinds.forEach(({ kind, names, link }, k) => {
      const found = text ? matches(lower[k], text) : [];
      if (found.length) parts.push(make("li", { role: "presentation", kind: "group", text: `${kind}s` }));
      for (const i of found) {
        const option = make("li", { role: "option", id: `found-${k}-${i}`, "data-href": link(i), text: names[i], "aria-selected": "false" });
        option.addEventListener("pointerdown", (event) => { event.preventDefault(); choose(option); });
        parts.push(option);
      }
    });
    if (text && !parts.length) parts.push(make("li", { role: "presentation", kind: "group", text: "Nothing has this in its name." }));
    results.replaceChildren(...parts);
    open(parts.length > 0);
    activate(0);
  };
  input.addEventListener("input", find);
  input.addEventListener("focus", find);
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keydown", (event) => {
    const option = options()[active];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") activate(active + (event.key === "ArrowDown" ? 1 : -1));
    else if (event.key === "Enter" && option) choose(option);
    else if (event.key === "Escape") { input.value = ""; input.blur(); }
    else return;
    event.preventDefault();
  });
};
