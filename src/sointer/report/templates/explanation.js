"use strict";
// One explanation, drawn into any element. It needs nothing but a record:
// { sample, target, expected, features: [{ name, value, score, href? }], confirmed: true | false | null,
//   agreement?: share of draws, number?: probability or number, text?: the document, words?: [names],
//   far?: true for a sample unlike the training data }
// All texts are set as text, never as HTML.
const sointerExplanation = (() => {
  const make = (name, { kind, text, ...attributes } = {}, ...children) => {
    const node = document.createElement(name);
    if (kind) node.className = kind;
    if (text !== undefined) node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const strong = (text) => make("strong", { text });
  const hasText = (record) => record.text !== undefined && record.text !== null;
  const number = (value) => Number(value.toPrecision(3)).toString();

  const answer = (record) => {
    const line = make("p", { kind: "answer" }, "Sample ", strong(record.sample), ": the model says that ", strong(record.target),
      " is ", strong(record.expected));
    if (record.number !== undefined && record.number !== null && record.expected !== number(record.number))
      line.append(` (probability ${number(record.number)})`);
    line.append(".");
    return line;
  };

  const check = (record) => {
    if (record.confirmed === true)
      return make("p", { kind: "check yes", text: "✓ Confirmed: shown nothing else, the model says the same." });
    if (record.confirmed === false) {
      const draws = record.agreement > 0 ? ` in ${Math.round(100 * (1 - record.agreement))} % of draws` : "";
      return make("p", { kind: "check no", text: `✗ Not confirmed: shown nothing else, the model says something else${draws}.` });
    }
    return make("p", { kind: "check unknown", text: "○ The model was not asked to confirm this one." });
  };

  // Of words, how often they occur, unless once; of anything else, its value.
  const valued = (record, { value }) => {
    if (value === null || value === undefined || value === "") return "";
    if (hasText(record)) return String(value) === "1" ? "" : `${value} ×`;
    return `= ${value}`;
  };

  const bars = (record) => {
    const largest = Math.max(...record.features.map((feature) => Math.abs(feature.score)), 1e-12);
    const both = record.features.some((feature) => feature.score < 0);
    const list = make("ol", { kind: both ? "bars both" : "bars", "aria-label": "Selected, best first" });
    for (const feature of record.features) {
      const against = feature.score < 0, bar = make("i", { kind: against ? "bar against" : "bar" });
      bar.style.setProperty("--share", (Math.abs(feature.score) / largest).toFixed(4));
      const name = feature.href ? make("a", { kind: "name", text: feature.name, href: feature.href })
        : make("span", { kind: "name", text: feature.name });
      name.title = feature.name;
      list.append(make("li", { title: `score ${number(feature.score)}${against ? ", against the answer" : ""}` }, name,
        make("span", { kind: "value", text: valued(record, feature), title: feature.value }), make("span", { kind: "track" }, bar),
        make("span", { kind: "unseen", text: `score ${number(feature.score)}` })));
    }
    if (!record.features.length) list.append(make("li", { kind: "none", text: "Nothing was selected: nothing in this sample can be removed." }));
    return list;
  };

  const tint = (node, score, largest) => {
    const strength = 0.18 + 0.5 * Math.abs(score) / largest;
    node.style.background = `rgba(var(--mark${score < 0 ? "-against" : ""}), ${strength.toFixed(2)})`;
    if (score < 0) node.classList.add("against");
    return node;
  };

  // The selected words where they stand in a text; "new york" is also found across a comma or a line's end.
  const highlighted = (record) => {
    const box = make("p", { kind: "document", tabindex: "0", role: "group", "aria-label": "The text, selected words marked" });
    const scores = new Map(record.features.map((feature) => [feature.name.toLowerCase(), feature.score]));
    const largest = Math.max(...[...scores.values()].map(Math.abs), 1e-12);
    const plain = (word) => word.replace(/[.*+?^$()|[\]\\\x7b\x7d\/-]/g, "\\$&").replace(/\s+/g, "[^\\p{L}\\p{N}_]+");
    const words = [...scores.keys()].filter(Boolean).sort((a, b) => b.length - a.length).map(plain);
    const pattern = words.length ? new RegExp(`(?<![\\p{L}\\p{N}_])(?:${words.join("|")})(?![\\p{L}\\p{N}_])`, "giu") : null;
    let end = 0;
    for (const found of pattern ? record.text.matchAll(pattern) : []) {
      const word = found[0].toLowerCase(), score = scores.get(word) ?? scores.get(word.split(/[^\p{L}\p{N}_]+/u).join(" ")) ?? largest / 2;
      box.append(record.text.slice(end, found.index), tint(make("mark", { text: found[0], title: `score ${number(score)}` }), score, largest));
      end = found.index + found[0].length;
    }
    box.append(record.text.slice(end));
    return box;
  };

  const chips = (record) => {
    const scores = new Map(record.features.map((feature) => [feature.name, feature.score]));
    const largest = Math.max(...[...scores.values()].map(Math.abs), 1e-12);
    const box = make("p", { kind: "chips" });
    for (const word of record.words) {
      const chip = make("span", { kind: scores.has(word) ? "chip selected" : "chip", text: word });
      box.append(scores.has(word) ? tint(chip, scores.get(word), largest) : chip, " ");
    }
    return box;
  };

  const render = (container, record) => {
    const parts = [answer(record), check(record), bars(record)];
    if (record.far) parts.splice(2, 0, make("p", { kind: "check far", text: "⚠ This sample lies far from the data that the explainer learned from." }));
    if (hasText(record)) parts.push(highlighted(record));
    else if (record.words) parts.push(make("h4", { text: "All that this sample has" }), chips(record));
    container.replaceChildren(...parts);
  };
  return { render, make, number };
})();
