"use strict";
// A tagged sequence, drawn into any element: choosing a label shows which tokens decided it. It needs nothing but a record, as
// the server sends it: { tokens, labels, value_source, targets: [{ position, value, keeps, agreement?, verdict?,
//   selected: [{ at, token, label, score, effect?, direct?, mediated?, through?: { at, label } }] }] }
// The labels are a group of radio buttons: arrow keys, Home and End move between them. All texts are set as text, never as HTML.
const sointerSequence = (() => {
  const { make, number, check } = sointerExplanation;
  const percent = (share) => `${Math.round(100 * share)} %`;
  const shown = (value) => typeof value === "number" ? number(value) : String(value);
  const isMediated = (one) => Boolean(one.through);
  const way = (one) => one.effect === undefined ? ""
    : isMediated(one) ? `through other labels, the last one ${shown(one.through.label)} of token ${one.through.at}` : "directly";

  const because = (record, target) => {
    const token = record.tokens[target.position], isExpected = record.value_source === "expected";
    const parts = [make("p", { kind: "answer" }, make("strong", { text: token }), ` (token ${target.position}) `,
      isExpected ? "is expected to be " : "is ", make("strong", { text: shown(target.value) }),
      target.selected.length ? (target.keeps >= 0.5 ? " because of:" : ". What decides it was not found; closest come:") : target.keeps >= 0.5 ? ", whatever the tokens are: none is needed."
        : ". The explainer expected something else, and found no tokens that keep it.")];
    const largest = Math.max(...target.selected.map((one) => one.score), 1e-12);
    const list = make("ol", { kind: "reasons" });
    for (const one of target.selected) {
      const bar = make("i", { kind: "bar" });
      bar.style.setProperty("--share", (Math.max(one.score, 0) / largest).toFixed(4));
      list.append(make("li", {}, make("strong", { text: one.token }),
        make("span", { kind: "soft", text: one.at === target.position ? "the token itself" : `token ${one.at}, ${shown(one.label)}` }),
        make("span", { kind: "track", title: `relevance ${number(one.score)}` }, bar),
        make("span", { kind: isMediated(one) ? "way mediated" : "way", text: way(one) })));
    }
    if (target.selected.length) parts.push(list);
    const asked = target.agreement !== undefined && target.agreement !== null;
    parts.push(asked ? check({ confirmed: target.verdict === "confirmed", unsure: target.verdict === "unsure", agreement: target.agreement }) : "",
      make("p", { kind: "soft", text: `With all other tokens replaced, it is expected to stay in ${percent(target.keeps)} of cases.` }));
    if (isExpected) parts.push(make("p", { kind: "soft", text: "The model was not queried; this is what the explainer expects of it." }));
    return parts;
  };

  const render = (container, record, name) => {
    const group = make("div", { kind: "tokens", role: "radiogroup", dir: "auto", "aria-label": `Labels of ${name}` });
    const panel = make("div", { kind: "because", "aria-live": "polite" });
    const targets = new Map(record.targets.map((target) => [target.position, target]));
    const buttons = record.tokens.map((token, at) => {
      const label = shown(record.labels[at]), button = make("button", { kind: "token", type: "button", role: "radio", "aria-checked": "false",
        tabindex: "-1", "aria-label": `${token}, token ${at}: ${label}` }, make("span", { kind: "word", text: token }), make("span", { kind: "label", text: label }));
      button.disabled = !targets.has(at);
      button.addEventListener("click", () => choose(at));
      return button;
    });
    const choose = (at) => {
      const target = targets.get(at), reasons = new Map(target.selected.map((one) => [one.at, one]));
      const largest = Math.max(...target.selected.map((one) => one.score), 1e-12);
      buttons.forEach((button, place) => {
        const one = reasons.get(place);
        button.setAttribute("aria-checked", String(place === at));
        button.tabIndex = place === at ? 0 : -1;
        button.classList.toggle("chosen", Boolean(one));
        button.classList.toggle("mediated", Boolean(one) && isMediated(one));
        button.style.setProperty("--strength", one ? (Math.max(one.score, 0) / largest).toFixed(3) : "0");
      });
      panel.replaceChildren(...because(record, target).filter(Boolean));
      container.dataset.chosen = at;
    };
    group.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const places = [...targets.keys()].sort((a, b) => a - b), now = places.indexOf(buttons.indexOf(event.target));
      const forward = getComputedStyle(group).direction === "rtl" ? -1 : 1;
      const step = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: 1, ArrowUp: -1 }[event.key];
      const next = event.key === "Home" ? 0 : event.key === "End" ? places.length - 1 : step ? (now + step + places.length) % places.length : null;
      if (next === null || now < 0) return;
      event.preventDefault();
      choose(places[next]);
      buttons[places[next]].focus();
    });
    const first = buttons.find((button) => !button.disabled);
    if (first) first.tabIndex = 0;
    group.append(...buttons);
    container.replaceChildren(group, panel);
    return choose;
  };
  return { render };
})();
