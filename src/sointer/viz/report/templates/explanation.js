"use strict";
// One explanation, drawn into any element. It needs nothing but a record:
// { sample, target, value, valueSource, features: [{ name, value, score, needed?, effect?, href?, spans?: [[start, end]] in the text }],
//   confirmed: true | false | null, unsure?: true where more draws would tell, agreement?: share of draws, number?: probability or number, isProbability?,
//   difference?: of a number, how far the prediction moved, in standard deviations, and tolerance?,
//   effects?: { on: what they are effects on, base, others: the sum of those not shown, start? }, more?: selected but not shown,
//   place?: { where, share?, said?: the share as text, features? } the locality, text?: the document, words?: [names], isTable?: true if texts are columns of a table,
//   far?: true for a sample unlike the training data }
// Relevance (score) is grey, since it has no sign; effects are blue (up) and orange (down).
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
  // Three digits, or all before the point, as of years and prices; single precision has seven.
  const number = (value) => Math.abs(value) < 999.5 || Math.abs(value) >= 1e15 ? Number(value.toPrecision(3)).toString()
    : Math.round(Number(value.toPrecision(7))).toLocaleString("en-US");
  const signed = (value) => `${value < 0 ? "−" : "+"}${number(Math.abs(value))}`;
  const capital = (text) => (text.startsWith("the ") ? `T${text.slice(1)}` : text);
  const side = (value) => (value < 0 ? "down" : "up");

  const answer = (record) => {
    const isExpected = record.valueSource === "expected";
    const line = make("p", { kind: "answer" }, "Sample ", strong(record.sample), isExpected ? ": expected for " : ": the model predicts that ",
      strong(record.target), isExpected ? ": " : " is ", strong(record.value));
    if (record.number !== undefined && record.number !== null && record.value !== number(record.number))
      line.append(` (probability ${number(record.number)})`);
    line.append(".");
    if (isExpected) line.append(" ", make("span", { kind: "soft", text: "The model was not queried; this is what the explainer expects of it." }));
    return line;
  };

  const check = (record) => {
    // Of a probability, only its side counts: 0.51 and 0.99 are the same prediction.
    const [same, other] = record.isProbability ? ["the model's probability stays on its side of 0.5", "the model's probability is on the other side of 0.5"]
      : ["the model predicts the same", "the model predicts something else"];
    if (record.difference !== undefined && record.difference !== null) {
      const kind = record.confirmed ? "yes" : record.unsure ? "unknown" : "no", sign = { yes: "✓", unknown: "≈", no: "✗" }[kind];
      const draws = record.agreement === 1 ? "always" : `in ${Math.round(100 * record.agreement)} % of draws`;
      return make("p", { kind: `check ${kind}`, text: `${sign} Shown nothing else, the model's prediction moves by ${number(record.difference)} standard deviations on average; it stays within ${number(record.tolerance)} ${draws}.` });
    }
    if (record.unsure)
      return make("p", { kind: "check unknown", text: `≈ Unsure: shown nothing else, ${same} in ${Math.round(100 * record.agreement)} % of draws.` });
    if (record.confirmed === true)
      return make("p", { kind: "check yes", text: `✓ Confirmed: shown nothing else, ${same}.` });
    if (record.confirmed === false) {
      const draws = record.agreement > 0 ? ` in ${Math.round(100 * (1 - record.agreement))} % of draws` : "";
      return make("p", { kind: "check no", text: `✗ Refuted: shown nothing else, ${other}${draws}.` });
    }
    return make("p", { kind: "check unknown", text: "○ The model was not queried to confirm this one." });
  };

  // Of words, how often they occur, unless once; of anything else, its value.
  const valued = (record, { value, spans }) => {
    if (value === null || value === undefined || value === "") return "";
    if (hasText(record) && (spans || !record.isTable)) return String(value) === "1" ? "" : `${value} ×`;
    return `= ${value}`;
  };

  // Short values stay on one line; long ones may break anywhere.
  const valueOf = (record, feature) => {
    const text = valued(record, feature);
    return make("span", { kind: text.length <= 9 ? "value short" : "value", text, title: feature.value });
  };
  const pushBar = (effect, largest) => {
    const bar = make("i", { kind: side(effect) });
    bar.style.setProperty("--share", (Math.abs(effect) / largest).toFixed(4));
    return make("span", { kind: "push" }, bar);
  };
  const bars = (record) => {
    const largest = Math.max(...record.features.map((feature) => Math.abs(feature.score)), 1e-12), effects = record.effects;
    const farthest = Math.max(...record.features.map((feature) => Math.abs(feature.effect ?? 0)), Math.abs(effects?.others ?? 0), 1e-12);
    const list = make("ol", { kind: effects ? "bars signed" : "bars", "aria-label": "Selected, best first" });
    if (effects && record.features.length) list.append(make("li", { kind: "head", "aria-hidden": "true" }, make("span", { kind: "relevance", text: "relevance" }),
      make("span", { kind: "push", text: `pushes ${effects.on} up or down by` })));
    for (const feature of record.features) {
      const idle = feature.needed === false, bar = make("i", { kind: "bar" });
      bar.style.setProperty("--share", (Math.max(feature.score, 0) / largest).toFixed(4));
      const name = feature.href ? make("a", { kind: "name", text: feature.name, href: feature.href })
        : make("span", { kind: "name", text: feature.name });
      name.title = feature.name;
      const detail = [`relevance ${number(feature.score)}`, idle ? "not needed" : "", effects ? `effect ${signed(feature.effect)}` : ""].filter(Boolean).join(", ");
      const line = make("li", { kind: idle ? "idle" : "", title: detail }, name,
        valueOf(record, feature), make("span", { kind: "track" }, bar));
      if (effects) line.append(pushBar(feature.effect, farthest), make("span", { kind: `effect ${side(feature.effect)}`, text: signed(feature.effect) }));
      line.append(make("span", { kind: "unseen", text: detail }));
      list.append(line);
    }
    if (effects && record.features.length) list.append(make("li", { kind: "rest", title: `effect of everything that is not listed: ${signed(effects.others)}` },
      make("span", { kind: "others", text: "all others" }), make("span"), make("span"),
      pushBar(effects.others, farthest), Math.abs(effects.others) < farthest / 1000 ? make("span", { kind: "effect", text: "0" })
        : make("span", { kind: `effect ${side(effects.others)}`, text: signed(effects.others) })));
    if (!record.features.length) list.append(make("li", { kind: "none", text: "Nothing was selected: nothing in this sample is needed." }));
    return list;
  };

  // What goes with the bars: where effects lead, what is not needed or not shown, and where the sample lies.
  const notes = (record) => {
    const parts = [], effects = record.effects, idle = record.features.filter((feature) => feature.needed === false).length;
    if (effects) {
      const total = effects.base + effects.others + record.features.reduce((sum, feature) => sum + feature.effect, 0);
      const predicted = record.number !== undefined && record.number !== null && record.valueSource !== "expected" ? `; the model predicts ${number(record.number)}` : "";
      const isShare = effects.on.startsWith("the probability"), small = isShare && effects.base < 0.001 ? "less than 0.001" : number(effects.base);
      // Effects are estimates: together they may lead a little beyond what a probability can be.
      const nearest = Math.min(1, Math.max(0, total)), end = isShare && nearest !== total && Math.abs(total - nearest) < 0.05 ? `about ${nearest}` : number(total);
      parts.push(make("p", { kind: "from-to", text: `${capital(effects.on)} is ${small} ${effects.start ?? "on average"}; all effects lead to ${end}${predicted}.` }));
    }
    if (idle) parts.push(make("p", { kind: "idle-note", text: `Hollow: not needed (${idle}), shown only because k was set to as many.` }));
    if (record.more) parts.push(make("p", { kind: "idle-note", text: `${record.more} more ${record.more === 1 ? "is" : "are"} needed that ${record.more === 1 ? "is" : "are"} not listed.` }));
    if (record.place) {
      const { where, share, said } = record.place;
      parts.push(make("p", { kind: "where" }, "Locality: ", strong(where), share === undefined ? "." : ` (${said ?? `${Math.round(100 * share)} %`} of samples).`));
    }
    return parts;
  };

  // How strongly, and in which colour, a word is marked: by its effect, or in grey by its relevance.
  const sizeOf = (record, feature) => record.effects ? feature.effect : feature.score;
  const tint = (node, record, size, largest) => {
    const strength = 0.18 + 0.5 * Math.abs(size) / largest, sign = !record.effects ? "-neutral" : size < 0 ? "-against" : "";
    node.style.background = `rgba(var(--mark${sign}), ${strength.toFixed(2)})`;
    if (record.effects) node.classList.add(side(size));
    return node;
  };

  // The selected words where they stand in a text; places count characters, not the halves that strings are made of.
  const highlighted = (record) => {
    const box = make("p", { kind: "document", tabindex: "0", role: "group", "aria-label": "The text, selected words marked" });
    const letters = Array.from(record.text), largest = Math.max(...record.features.map((feature) => Math.abs(sizeOf(record, feature))), 1e-12);
    const marks = record.features.flatMap((feature) => (feature.spans ?? []).map(([start, end]) => [start, end, sizeOf(record, feature)]));
    let last = 0;
    for (const [start, end, size] of marks.sort((a, b) => a[0] - b[0])) {
      const title = record.effects ? `effect ${signed(size)}` : `relevance ${number(size)}`;
      box.append(letters.slice(last, start).join(""), tint(make("mark", { text: letters.slice(start, end).join(""), title }), record, size, largest));
      last = end;
    }
    box.append(letters.slice(last).join(""));
    return box;
  };

  const chips = (record) => {
    const scores = new Map(record.features.map((feature) => [feature.name, sizeOf(record, feature)]));
    const largest = Math.max(...[...scores.values()].map(Math.abs), 1e-12);
    const box = make("p", { kind: "chips" });
    for (const word of record.words) {
      const chip = make("span", { kind: scores.has(word) ? "chip selected" : "chip", text: word });
      box.append(scores.has(word) ? tint(chip, record, scores.get(word), largest) : chip, " ");
    }
    return box;
  };

  const render = (container, record) => {
    const parts = [answer(record), check(record), bars(record), ...notes(record)];
    if (record.far) parts.splice(2, 0, make("p", { kind: "check far", text: "⚠ This sample lies far from the data that the explainer learned from." }));
    if (hasText(record)) parts.push(highlighted(record));
    else if (record.words) parts.push(make("h4", { text: "All that this sample has" }), chips(record));
    container.replaceChildren(...parts);
  };
  return { render, make, number, signed, check };
})();
