"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { make, number, render } = sointerExplanation;
  const packed = sointerUnpack(data);
  const byId = (id) => document.getElementById(id);
  const state = { view: "overview", target: 0, sample: 0, feature: 0, filter: "all" };
  const [nTargets, nSamples] = [data.targets.length, data.samples.length];
  const targetNumber = new Map(data.targets.map((name, i) => [name, i]));
  const sampleNumber = new Map(data.samples.map((name, i) => [name, i]));
  const farSamples = new Set(data.far);
  const featureNumber = new Map(data.features.map((name, i) => [name, i]));
  const percent = (share) => share < 1 && share >= 0.9995 ? "> 99.9 %" : `${(100 * share).toFixed((share > 0 && share < 0.095) || (share > 0.985 && share < 1) ? 1 : 0)} %`;
  const many = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
  const targetLink = (target, sample) => `#target=${encodeURIComponent(data.targets[target])}` +
    (sample === undefined ? "" : `&sample=${encodeURIComponent(data.samples[sample])}`);
  const featureLink = (feature) => `#feature=${encodeURIComponent(data.features[feature])}`;
  const valueOf = (sample, target) => packed.block(sample).values[target];
  const probabilityOf = (sample, target) => {
    const found = data.kinds[target] === "probability" ? packed.numberOf(sample, target) : null;
    return found === null ? null : number(found);
  };
  const saidOf = (sample, target) => data.kinds[target] === "continuous" ? number(packed.numberOf(sample, target)) : data.values[valueOf(sample, target)];
  const mark = (sample, target) => {
    const agreement = packed.agreement(sample, target);
    return agreement === null ? ["○", "not checked"] : agreement === 1 ? ["✓", "confirmed"] : agreement < data.refutedBelow ? ["✗", "refuted"] : ["≈", "unsure"];
  };
  // Shares of a whole as text, rounded so that they add up to 100 %.
  const parts = (counts) => {
    const total = counts.reduce((sum, n) => sum + n, 0) || 1, fine = counts.some((n) => n && (n / total < 0.095 || (n < total && n / total > 0.985))) ? 10 : 1;
    const exact = counts.map((n) => 100 * fine * n / total), whole = exact.map(Math.floor);
    const order = exact.map((_, i) => i).sort((a, b) => (exact[b] - whole[b]) - (exact[a] - whole[a]));
    const left = Math.round(exact.reduce((sum, one) => sum + one, 0)) - whole.reduce((sum, one) => sum + one, 0);
    for (const i of order.slice(0, left)) whole[i]++;
    return whole.map((one) => `${(one / fine).toFixed(fine === 10 && one % 10 ? 1 : 0)} %`);
  };
  const nOthers = (summary) => nSamples - summary.values.reduce((sum, value) => sum + value.n, 0);
  const rates = (summary) => parts([...summary.values.map((value) => value.n), nOthers(summary)]);

  const localityOf = (sample, target) => {
    const { locality } = packed.block(sample);
    if (!data.localities || !locality) return null;
    const { localities } = data.localities[target];
    if (localities.length <= 1) return null;
    const place = locality[target], shares = parts(localities.map(({ share }) => share));  // rounded as where all are listed
    return { ...localities[place], said: shares[place] };
  };
  // In the unit of the output: the number, the probability, or the probability of the label explained.
  const effectsOf = (sample, target) => {
    const found = packed.effects(sample, target), name = data.targets[target], kind = data.kinds[target];
    if (!found) return null;
    const on = kind === "continuous" ? name : kind === "probability" ? `the probability of ${name}` : `the probability that ${name} is ${saidOf(sample, target)}`;
    return { ...found, on, start: data.start };
  };
  const recordOf = (sample, target) => {
    const agreement = packed.agreement(sample, target), { present, more } = packed.block(sample);
    return {
      sample: data.samples[sample], target: data.targets[target], value: saidOf(sample, target), valueSource: data.valueSource,
      number: ["probability", "continuous"].includes(data.kinds[target]) ? packed.numberOf(sample, target) : null, isProbability: data.kinds[target] === "probability",
      features: packed.chosen(sample, target).map(({ feature, value, score, needed, effect }) => ({
        name: data.features[feature], value, score, needed, effect, href: featureLink(feature),
        spans: data.spans ? data.spans[sample][feature] : null })),
      effects: effectsOf(sample, target), more: more ? more[target] : 0, place: localityOf(sample, target),
      confirmed: agreement === null ? null : agreement === 1, unsure: mark(sample, target)[1] === "unsure", agreement,
      difference: data.kinds[target] === "continuous" ? packed.differenceOf(sample, target) : null, tolerance: data.tolerance, far: farSamples.has(sample),
      text: data.texts ? data.texts[sample] : null, isTable: data.unitNoun !== "word",
      words: present ? [...present].map((feature) => data.features[feature]) : null,
    };
  };

  // --- overview -----------------------------------------------------------------------------------------------

  const shareBar = (share, low, high) => {
    const track = make("span", { kind: "share" }), bar = make("i", { kind: "bar" });
    bar.style.setProperty("--share", share.toFixed(4));
    track.append(bar);
    if (low !== undefined) {
      const range = make("b");
      [range.style.left, range.style.width] = [`${100 * low}%`, `${100 * (high - low)}%`];
      track.append(range);
    }
    return track;
  };
  const sd = (error) => error < 0.01 ? "less than 0.01 sd" : `${number(error)} sd`;
  const confirmedCell = (target) => {
    const { confirmed, refuted, error } = data.summaries[target];
    if (!confirmed) return make("td", { kind: "soft", text: "–", title: "not checked" });
    const [mean, low, high, n, nConfirmed] = confirmed;
    if (data.kinds[target] === "continuous") return make("td", { title: `predictions from the selected ${data.unitNoun}s alone, ${n} checked; within ${number(data.tolerance)} counts as equal` }, `moves by ${sd(error)}`);
    return make("td", { title: `95 % interval ${percent(low)} to ${percent(high)}; ${n} checked: ${nConfirmed} confirmed, ${n - nConfirmed - refuted} unsure, ${refuted} refuted` }, shareBar(mean, low, high), ` ${percent(mean)}`,
      refuted ? make("span", { kind: "soft", text: `, ${refuted} of ${n} refuted` }) : "");
  };
  const skillCell = (target) => {
    const [agreement, skill] = data.quality[target];
    if (skill === null) return make("td", { kind: "soft", text: "–", title: "this output never changed" });
    return make("td", { title: `of held-out outputs, ${percent(agreement)} predicted correctly` }, shareBar(Math.max(0, skill)), ` ${percent(Math.max(0, skill))}`);
  };
  const rareShare = (summary) => 1 - (summary.values.find((value) => value.value === summary.mostCommon)?.n ?? 0) / nSamples;
  const columns = {
    name: (i) => data.targets[i].toLowerCase(),
    rate: (i) => -rareShare(data.summaries[i]),
    confirmed: (i) => data.summaries[i].confirmed ? data.summaries[i].confirmed[0] : 2,
    skill: (i) => data.quality && data.quality[i][1] !== null ? data.quality[i][1] : 2,
  };
  // What the model predicts for the samples: how often each value, the most common ones in their own order; of numbers, their range.
  const rateWords = (target) => {
    const summary = data.summaries[target];
    if (data.kinds[target] === "continuous") {
      const all = data.samples.map((_, sample) => packed.numberOf(sample, target)).sort((a, b) => a - b);
      return `from ${number(all[0])} to ${number(all[all.length - 1])}, half of them below ${number(all[all.length >> 1])}`;
    }
    // All if there are few; else the most common ones, and the share of the others.
    const most = summary.values.length > 4 || nOthers(summary) ? 3 : 4, left = summary.values.slice(0, -most).reduce((sum, { n }) => sum + n, nOthers(summary));
    const shown = summary.values.slice(-most), of = parts([...shown.map(({ n }) => n), left]);
    const words = shown.map((value, i) => [value.value, `${data.values[value.value]}: ${of[i]}`]).sort(([a], [b]) => a - b).map(([, text]) => text);
    return [...words, ...(left ? [`others: ${of[shown.length]}`] : [])].join(" · ");
  };
  const outputRow = (target) => {
    const summary = data.summaries[target], top = make("td", { kind: "top" });
    if (nTargets > CARDS) summary.features.slice(0, 4).forEach(([feature], i) => top.append(i ? ", " : "", make("a", { href: featureLink(feature), text: data.features[feature] })));
    return make("tr", {}, make("th", { scope: "row" }, make("a", { href: targetLink(target), text: data.targets[target] })),
      make("td", { kind: "rate", text: rateWords(target) }), confirmedCell(target), ...(data.quality ? [skillCell(target)] : []), ...(nTargets > CARDS ? [top] : []));
  };

  // What decides one output, at a glance: which features, which way each pushes, and where which of them matter.
  const CARDS = 12, PER_CARD = 5, REGIONS = 4;
  const onOutput = (target) => data.kinds[target] === "probability" ? `the probability of ${data.targets[target]}`
    : data.upper[target] !== null ? `the probability that ${data.targets[target]} is ${data.upper[target]}` : data.targets[target];
  // Of two labels, which one is up: "go" is neither above nor below "halt".
  const upperNote = (target) => data.upper[target] === null || !Object.keys(data.partial[target] ?? {}).length ? []
    : [make("p", { kind: "soft upper", text: `Up: more probably ${data.upper[target]}.` })];
  const largestEffect = (target) => Math.max(...Object.values(data.partial[target] ?? {}).flatMap(({ effects, missing }) => [...effects, ...(missing ?? [])].map(Math.abs)), 0);
  const largestSize = (target) => Math.max(...Object.values(data.partial[target] ?? {}).map(({ size }) => size), 0);
  const directionWords = (found, target) => larger(found, target) + unknown(found, target);
  // What missing values do, on average.
  const unknown = (found, target) => {
    if (!found?.missing) return "";
    return `; where it is missing, that ${found.meanMissing < 0 ? "lowers" : "raises"} ${onOutput(target)} by ${number(Math.abs(found.meanMissing))} on average`;
  };
  const larger = (found, target) => {
    if (!found || found.categories.length || !found.direction) return "";
    const [who, verb] = data.texts ? ["it", found.direction > 0 ? "raises" : "lowers"] : ["larger values", found.direction > 0 ? "raise" : "lower"];
    return `; ${who} ${verb} ${onOutput(target)}`;
  };
  const needLine = (target, feature, count) => {
    const bar = make("i", { kind: "bar" }), found = data.partial[target]?.[feature], share = count / nSamples;
    bar.style.setProperty("--share", (found ? found.size / Math.max(largestSize(target), 1e-12) : share).toFixed(4));
    const moved = found ? `moves ${onOutput(target)} by ${number(found.size)} on average; ` : "";
    const words = `${moved}needed in ${count} of ${nSamples} samples${directionWords(found, target)}`;
    return make("li", { title: words }, make("a", { kind: "name", href: featureLink(feature), text: data.features[feature] }), make("span", { kind: "track" }, bar), make("span", { kind: "value", text: found ? number(found.size) : percent(share) }),
      found ? sointerCharts.partial(found, largestEffect(target), { name: data.features[feature], on: onOutput(target) }) : make("span"),
      make("span", { kind: "trend", text: !found || found.categories.length ? "" : { 1: "↗", "-1": "↘", 0: "" }[found.direction] }), make("span", { kind: "unseen", text: words }));
  };
  const andMore = (n, shown) => n > shown ? ` and ${n - shown} more` : "";
  const regionLine = (region) => make("li", {}, shareBar(region.share), make("span", { kind: "region", text: region.where }),
    make("span", { kind: "soft", text: region.features.length ? region.features.slice(0, PER_CARD).map(([feature]) => data.features[feature]).join(", ") + andMore(region.features.length, PER_CARD) : "nothing" }));
  const outputCard = (target) => {
    const summary = data.summaries[target], regions = data.localities ? data.localities[target] : null, confirmed = summary.confirmed;
    const card = make("section", { kind: "card output" }, make("h4", {}, make("a", { href: targetLink(target), text: data.targets[target] })), make("p", { kind: "soft", text: rateWords(target) }));
    // The longest bar first.
    const size = ([feature, count]) => data.partial[target]?.[feature]?.size ?? -1 + count / (2 * nSamples);
    const strongest = [...summary.features].sort((a, b) => size(b) - size(a)).slice(0, PER_CARD);
    const list = make("ol", { kind: "needs" }, ...strongest.map(([feature, count]) => needLine(target, feature, count)));
    card.append(...(summary.features.length ? upperNote(target) : []), summary.features.length ? list : make("p", { kind: "soft", text: `No ${data.unitNoun} is needed: it is the same for all samples shown.` }));
    if (summary.features.length > PER_CARD) card.append(make("p", { kind: "soft", text: `and ${summary.features.length === 10 ? "at least " : ""}${summary.features.length - PER_CARD} more` }));
    if (data.start && summary.features.length && !Object.keys(data.partial[target] ?? {}).length) card.append(make("p", { kind: "soft", text: `In percent: samples that need the ${data.unitNoun}. Which way it pushes differs from label to label: choose a ${data.unitNoun}.` }));
    if (regions && !regions.decided) card.append(make("p", { kind: "soft", text: `Many ${data.unitNoun}s contribute a little; these are the strongest.` }));
    else if (regions && regions.localities.length > 1) card.append(make("ul", { kind: "regions", "aria-label": `Which ${data.unitNoun}s matter where` }, make("li", { kind: "head" }, ...["samples", "where", "decided by"].map((text) => make("span", { text }))), ...regions.localities.slice(0, REGIONS).map(regionLine), ...(regions.localities.length > REGIONS ? [make("li", {}, make("span"), make("span", { kind: "soft", text: andMore(regions.localities.length, REGIONS).trim() }))] : [])));
    const trust = [confirmed ? (data.kinds[target] === "continuous" ? `from these alone, off by ${sd(summary.error)}` : `${percent(confirmed[0])} confirmed`) : "not checked"];
    if (data.quality && data.quality[target][1] !== null) trust.push(`skill ${percent(Math.max(0, data.quality[target][1]))}`);
    card.append(make("p", { kind: "soft trust-line", text: trust.join(" · ") }));
    return card;
  };
  const fillDeciding = (n) => {
    byId("deciding").replaceChildren(...data.targets.slice(0, n).map((_, i) => outputCard(i)));
    byId("more-outputs").hidden = n >= nTargets;
    byId("more-outputs").textContent = `Show ${Math.min(CARDS, nTargets - n)} more of ${nTargets} outputs`;
    byId("more-outputs").onclick = () => fillDeciding(n + CARDS);
  };
  const fillOutputs = (by, down) => {
    const order = data.targets.map((_, i) => i);
    if (by) order.sort((a, b) => { const [x, y] = [columns[by](a), columns[by](b)]; return (x < y ? -1 : x > y ? 1 : a - b) * (down ? -1 : 1); });
    byId("outputs").replaceChildren(...order.map(outputRow));
    for (const button of document.querySelectorAll("#outputs-table button")) button.closest("th").setAttribute("aria-sort",
      button.dataset.by === by ? (down ? "descending" : "ascending") : "none");
  };
  const fillMap = () => {
    if (!data.map) return;
    const choose = (name) => { if (targetNumber.has(name)) follow(targetLink(targetNumber.get(name))); };
    sointerCharts.heatMap(byId("map-figure"), data.outputs, data.map, choose);
    byId("pairs").replaceChildren(...data.map.pairs.map(([a, b, strength]) => make("li", {}, outputName(a), " and ", outputName(b),
      make("span", { kind: "soft", text: ` ${strength}` }))));
  };
  const outputName = (output) => {
    const name = data.outputs[output];
    return targetNumber.has(name) ? make("a", { href: targetLink(targetNumber.get(name)), text: name }) : make("span", { text: name });
  };

  // --- one target ---------------------------------------------------------------------------------------------

  const confirmedWords = (share) => share ? `${percent(share[0])} confirmed (${share[4]} of ${share[3]} checked; 95 % interval ${percent(share[1])} to ${percent(share[2])})`
    : "the model was not queried to confirm them";
  const judgedWords = (target) => {
    const { confirmed, error } = data.summaries[target];
    return confirmed && data.kinds[target] === "continuous" ? `shown the selected ${data.unitNoun}s alone, the model's prediction moves by ${number(error)} standard deviations on average (${confirmed[3]} checked)` : confirmedWords(confirmed);
  };
  const sampleButton = (sample) => {
    const [sign, words] = mark(sample, state.target);
    const button = make("button", { kind: "sample", type: "button", title: words }, data.samples[sample], make("span", { kind: "soft", text: ` ${sign}`, "aria-label": words }));
    button.addEventListener("click", () => { chooseSample(sample); byId("browser").scrollIntoView({ block: "start" }); byId("list").focus({ preventScroll: true }); });
    return button;
  };
  const valueCard = (value, summary) => {
    const list = make("ol", { kind: "bars shares", "aria-label": "Share of samples that need it" });
    for (const [feature, count] of value.features) {
      const bar = make("i", { kind: "bar" }), share = count / value.n;
      bar.style.setProperty("--share", share.toFixed(4));
      list.append(make("li", { title: `needed in ${count} of ${value.n} samples` }, make("a", { kind: "name", href: featureLink(feature), text: data.features[feature], title: data.features[feature] }),
        make("span", { kind: "value", text: percent(share) }), make("span", { kind: "track" }, bar)));
    }
    const share = rates(summary)[summary.values.indexOf(value)], judged = data.kinds[state.target] === "continuous" ? "" : `; ${confirmedWords(value.confirmed)}`;
    const nothing = make("p", { kind: "soft", text: `No ${data.unitNoun} is needed: it is ${data.texts ? "what the model predicts without any words" : "the same whatever the features are"}.` });
    return make("section", { kind: "card" }, make("h3", {}, "Why ", make("strong", { text: data.values[value.value] }), "?"),
      make("p", { kind: "soft", text: `${many(value.n, "sample")} (${share})${judged}.` }),
      value.features.length ? list : nothing, make("p", { kind: "examples" }, "typical samples: ", ...value.examples.flatMap((sample) => [sampleButton(sample), " "])));
  };
  const failing = (summary) => {
    if (!summary.confirmed) return [make("p", { kind: "soft", text: "Not known: the model was not queried to confirm these explanations." })];
    if (!summary.failures.length) return [make("p", { text: `All ${many(summary.confirmed[3], "explanation")} that were checked were confirmed.` })];
    const n = summary.confirmed[3] - summary.confirmed[4], unsure = n - summary.refuted;
    const more = n > summary.failures.length ? ` The worst ${summary.failures.length} are listed.` : "";
    const said = data.kinds[state.target] === "continuous" ? `the model's prediction did not stay within ${number(data.tolerance)} standard deviations`
      : data.kinds[state.target] === "probability" ? "the model's probability did not stay on its side of 0.5" : "the model did not predict the same";
    const verdicts = [summary.refuted ? `for ${many(summary.refuted, "sample")} clearly (refuted)` : "", unsure ? `for ${many(unsure, "sample")} in some draws only (unsure)` : ""].filter(Boolean).join(", and ");
    return [make("p", { text: `Shown the selected ${data.unitNoun}s alone, ${said}: ${verdicts}. There it relied on more than is shown.${more}` }),
      make("p", { kind: "examples" }, ...summary.failures.flatMap((sample) => [sampleButton(sample), " "]))];
  };
  const pathsOf = (target) => {
    const summary = data.summaries[target], found = data.paths[target], parts = [];
    if (summary.partners.length) parts.push(make("p", {}, "Coupled most with ", ...summary.partners.flatMap(([output, strength], i) =>
      [i ? ", " : "", outputName(output), make("span", { kind: "soft", text: ` ${strength}` })]), "."));
    if (!found) {
      const followed = Object.keys(data.paths).map(Number);
      const words = data.texts ? "Of texts, what words do through other outputs is not known." : !data.isCoupled ? "This explainer takes every output on its own." : "What features do through other outputs was not followed for this one" + (followed.length ? ", but for " : ".");
      return [...parts, make("p", { kind: "soft" }, words, ...followed.flatMap((i, at) => [at ? ", " : "", make("a", { href: targetLink(i), text: data.targets[i] })]), followed.length ? "." : "")];
    }
    if (!found.paths.length) return [...parts, make("p", { kind: "soft", text: `Too few samples need any one ${data.unitNoun} to say.` })];
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...[data.unitNoun, "effect (95 % interval)", "direct", "mostly through"].map((text) => make("th", { scope: "col", text })))));
    const body = make("tbody");
    for (const path of found.paths) {
      const [output, effect] = path.through.reduce((best, one) => (one[1] > best[1] ? one : best), [-1, 0]);
      const isNone = output < 0 || effect < 0.005;
      body.append(make("tr", {}, make("th", { scope: "row" }, make("a", { href: featureLink(path.feature), text: data.features[path.feature] })), make("td", { text: `${path.total.toFixed(2)} ± ${path.margin.toFixed(2)}`, title: `${path.n} samples` }),
        make("td", { text: path.direct.toFixed(2) }), isNone ? make("td", { text: "–" }) : make("td", {}, outputName(output), ` ${effect.toFixed(2)}`)));
    }
    table.append(body);
    const what = { continuous: "far the number moves towards the other side of the median, as a share of its range,", probability: "far the probability moves towards the other side of 0.5" }[data.kinds[target]] ?? "much less probable the value gets";
    parts.push(make("p", { text: `How ${what} without a ${data.unitNoun}, averaged over ` +
      `${many(found.n_samples, "sample")}; and how much of that is lost while another output is held still. Orange goes directly, blue through another output.` }),
      make("div", { kind: "wide" }, sointerCharts.flow(found.paths, data.features, data.outputs, data.targets[target])), make("div", { kind: "wide" }, table));
    if (found.warning) parts.push(make("p", { kind: "soft", text: `Outputs that ${found.warning}.` }));
    return parts;
  };

  const localitiesOf = (target) => {
    const { decided, localities } = data.localities[target];
    const strongest = Math.max(...localities.flatMap((region) => region.features.map(([, relevance]) => relevance)), 1e-12);
    const strength = new Map();
    for (const { share, features } of localities) for (const [feature, relevance] of features) strength.set(feature, (strength.get(feature) ?? 0) + share * relevance);
    const columns = [...strength.keys()].sort((a, b) => strength.get(b) - strength.get(a)).slice(0, 12);
    const words = decided ? (localities.length > 1 ? `Other ${data.unitNoun}s decide in other regions. The darker, the more relevant; empty: not needed there.`
      : `The same ${data.unitNoun}s decide everywhere.`)
      : `Many ${data.unitNoun}s contribute a little; these are the strongest, but no few were confirmed to decide it alone. What counts is chosen for each sample by effects.`;
    const table = make("table", { kind: "localities" }, make("thead", {}, make("tr", {}, make("th", { scope: "col", text: "where" }), make("th", { scope: "col", text: "samples" }),
      ...columns.map((feature) => make("th", { scope: "col" }, make("a", { href: featureLink(feature), text: data.features[feature], title: data.features[feature] }))))));
    const body = make("tbody");
    const shares = parts(localities.map(({ share }) => share));
    for (const [place, region] of localities.entries()) {
      const of = new Map(region.features);
      body.append(make("tr", {}, make("th", { scope: "row", text: region.where }), make("td", {}, shareBar(region.share), ` ${shares[place]}`), ...columns.map((feature) => {
        const cell = make("td", { kind: "cell" });
        if (of.has(feature)) {
          const size = of.get(feature) / strongest;
          cell.style.background = `rgba(var(--mark-neutral), ${(0.1 + 0.45 * size).toFixed(2)})`;
          cell.textContent = number(of.get(feature));
          cell.title = `${data.features[feature]}: relevance ${number(of.get(feature))}`;
        }
        return cell;
      })));
    }
    table.append(body);
    return [make("p", { kind: "soft", text: words }), ...(localities.some((region) => region.features.length) ? [make("div", { kind: "wide" }, table)] : [])];
  };

  const filters = {
    all: () => true,
    refuted: (sample) => mark(sample, state.target)[1] === "refuted",
    unsure: (sample) => mark(sample, state.target)[1] === "unsure",
  };
  const passes = (sample) => state.filter in filters ? filters[state.filter](sample) : valueOf(sample, state.target) === Number(state.filter);
  const fillFilter = () => {
    const summary = data.summaries[state.target], select = byId("filter");
    const options = [["all", `all samples (${nSamples})`], ...summary.values.map((value) => [String(value.value), `${data.values[value.value]} (${value.n})`])];
    if (summary.refuted) options.push(["refuted", `refuted (${summary.refuted})`]);
    const unsure = summary.confirmed ? summary.confirmed[3] - summary.confirmed[4] - summary.refuted : 0;
    if (unsure) options.push(["unsure", `unsure (${unsure})`]);
    if (!options.some(([key]) => key === state.filter)) state.filter = "all";
    select.replaceChildren(...options.map(([value, text]) => make("option", { value, text })));
    select.value = state.filter;
  };
  const fillList = () => {
    const options = [];
    for (let sample = 0; sample < nSamples; sample++) if (passes(sample)) {
      const [sign, words] = mark(sample, state.target);
      const option = make("li", { role: "option", id: `sample-${sample}`, "data-sample": sample, "aria-selected": "false" },
        make("span", { kind: "who", text: data.samples[sample], title: data.samples[sample] }), make("span", { kind: "said", text: saidOf(sample, state.target) }),
        make("span", { kind: `sign ${words.split(" ")[0]}`, text: sign, title: words, "aria-label": words }));
      options.push(option);
    }
    byId("list").replaceChildren(...options);
    byId("nothing").hidden = options.length > 0;
  };
  const othersOf = (sample) => {
    const order = data.targets.map((_, i) => i).filter((i) => i !== state.target);
    const isRare = (i) => valueOf(sample, i) !== data.summaries[i].mostCommon, shown = [...order.filter(isRare), ...order.filter((i) => !isRare(i))].slice(0, 24);
    if (!shown.length) return [];
    return [make("h4", { text: data.valueSource === "expected" ? "What else is expected of this sample" : "What else it predicts for this sample" }), make("p", { kind: "chips" }, ...shown.flatMap((i) =>
      [make("a", { kind: isRare(i) ? "chip other selected" : "chip other", href: targetLink(i, sample), text: `${data.targets[i]}: ${probabilityOf(sample, i) ?? saidOf(sample, i)}` }), " "]),
      order.length > shown.length ? `and ${order.length - shown.length} more` : "")];
  };
  const showSample = () => {
    const list = byId("list");
    list.querySelector('[aria-selected="true"]')?.setAttribute("aria-selected", "false");
    const option = byId(`sample-${state.sample}`);
    if (option) {
      option.setAttribute("aria-selected", "true");
      list.setAttribute("aria-activedescendant", option.id);
      if (option.offsetTop < list.scrollTop || option.offsetTop + option.offsetHeight > list.scrollTop + list.clientHeight)
        list.scrollTop = option.offsetTop - list.clientHeight / 2;
    } else list.removeAttribute("aria-activedescendant");
    render(byId("record"), recordOf(state.sample, state.target));
    byId("others").replaceChildren(...othersOf(state.sample));
    Object.assign(document.body.dataset, { target: data.targets[state.target], sample: data.samples[state.sample] });
  };
  const chooseSample = (sample) => {
    state.sample = sample;
    if (!passes(sample)) { state.filter = "all"; byId("filter").value = "all"; fillList(); }
    history.replaceState(null, "", targetLink(state.target, sample));
    showSample();
  };
  const qualityWords = (target) => {
    if (!data.quality || data.quality[target][0] === null) return "";
    const [agreement, skill] = data.quality[target], graded = ["probability", "continuous"].includes(data.kinds[target]);
    const detail = skill === null ? "" : graded ? ` (R² ${number(skill)})` : ` (skill ${percent(Math.max(0, skill))})`;
    return ` The explainer predicts ${percent(agreement)} of its held-out outputs correctly${detail}.`;
  };
  const showTarget = () => {
    const summary = data.summaries[state.target];
    byId("target-name").textContent = data.targets[state.target];
    const others = nOthers(summary), shares = rates(summary);
    byId("target-summary").textContent = `${data.valueSource === "expected" ? "Expected (the model was not queried):" : "The model predicts"} ${summary.values.map((value, i) => `${data.values[value.value]} for ${many(value.n, "sample")} (${shares[i]})`).join(", ")}` +
      `${others ? `, something else for ${many(others, "sample")}` : ""}. ` +
      `Explanations: ${judgedWords(state.target)}.${qualityWords(state.target)}`;
    byId("localities-card").hidden = !data.localities;
    if (data.localities) byId("localities").replaceChildren(...localitiesOf(state.target));
    byId("values").replaceChildren(...summary.values.map((value) => valueCard(value, summary)));
    byId("failing").replaceChildren(...failing(summary));
    byId("paths").replaceChildren(...pathsOf(state.target));
    fillFilter();
    fillList();
    showSample();
  };

  // --- one feature --------------------------------------------------------------------------------------------

  // Of outputs with three labels or more: the pictures of a feature, one for each of the most frequent labels.
  const ofLabels = (target) => (data.byLabel[target] ?? []).filter(({ partial }) => partial[state.feature]);
  const largestOfLabels = (target) => Math.max(...data.byLabel[target].flatMap(({ partial }) => Object.values(partial).flatMap(({ effects, missing }) => [...effects, ...(missing ?? [])].map(Math.abs))));
  const labelPictures = (target) => ofLabels(target).flatMap(({ label, n, partial }) => [
    make("p", { text: `${data.targets[target]} = ${label} (${many(n, "sample")})` }),
    sointerCharts.partial(partial[state.feature], largestOfLabels(target), { name: data.features[state.feature], on: `the probability of ${label}`, large: true })]);
  // What the pictures of a feature show.
  const pictures = (targets) => {
    const found = targets.flatMap((target) => data.partial[target]?.[state.feature] ?? ofLabels(target).map(({ partial }) => partial[state.feature]));
    const some = targets.some((target) => ofLabels(target).length) ? " Where there are three labels or more, samples are those for which the label is explained, and effects are on its probability." : "";
    if (!found.length) return "";
    return (found.every(({ categories }) => categories.length) ? " Each bar is a value, and how far it pushes the output up or down, on average."
      : ` Each dot is a sample${nSamples > 60 ? " (of many samples, some are drawn)" : ""}: ${data.texts ? "how often it has the word" : "its value"}, and how far that pushes the output up or down.`) + some;
  };
  const showFeature = () => {
    const counts = packed.uses(state.feature), order = data.targets.map((_, i) => i).filter((i) => counts[i]).sort((a, b) => counts[b] - counts[a]);
    byId("feature-name").textContent = data.features[state.feature];
    byId("feature-summary").textContent = order.length ? `Needed for ${many(order.length, "output")}.${pictures(order)}`
      : "It is needed for no output in the samples of this report.";
    byId("uses").replaceChildren(...order.slice(0, 60).map((target) => {
      const found = data.partial[target]?.[state.feature], bar = make("i", { kind: "bar" });
      bar.style.setProperty("--share", (counts[target] / nSamples).toFixed(4));
      return make("section", { kind: "card use" }, make("h3", {}, make("a", { kind: "name", href: targetLink(target), text: data.targets[target] })),
        make("p", { kind: "soft" }, make("span", { kind: "track" }, bar), make("span", { kind: "value", text: String(counts[target]) }), ` of ${nSamples} samples need it${directionWords(found, target)}.`),
        ...(found ? upperNote(target) : []), ...(found ? [sointerCharts.partial(found, largestEffect(target), { name: data.features[state.feature], on: onOutput(target), large: true })] : labelPictures(target)));
    }));
  };

  // --- where we are -------------------------------------------------------------------------------------------

  const show = () => {
    for (const view of ["overview", "target", "feature"]) byId(`${view}-view`).classList.toggle("current", view === state.view);
    for (const link of document.querySelectorAll("nav a")) {
      const current = state.view === "target" ? link.dataset.target === String(state.target) : state.view === "overview" && link.hash === "#overview";
      current ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
      if (current && link.dataset.target) link.scrollIntoView({ block: "nearest" });
      if (link.dataset.target) link.tabIndex = link.dataset.target === String(state.target) ? 0 : -1;  // one stop for all
    }
    document.body.dataset.view = state.view;
  };
  const firstSample = (target) => data.summaries[target].values[0].examples[0] ?? 0;
  const say = (text) => { byId("notice").textContent = text; };
  const go = () => {
    const hash = location.hash.slice(1), wanted = new URLSearchParams(hash.replaceAll("+", "%2B"));
    say("");
    if (wanted.has("feature")) {
      if (!featureNumber.has(wanted.get("feature"))) say(`This report has no ${data.unitNoun} named “${wanted.get("feature")}”.`);
      else { state.feature = featureNumber.get(wanted.get("feature")); state.view = "feature"; showFeature(); show(); scrollTo(0, 0); return; }
    } else if (wanted.has("target") || wanted.has("sample")) {
      const target = wanted.has("target") ? targetNumber.get(wanted.get("target")) : state.target;
      const sample = wanted.has("sample") ? sampleNumber.get(wanted.get("sample")) : undefined;
      if (target === undefined) say(`This report has no output named “${wanted.get("target")}”.`);
      else {
        if (wanted.has("sample") && sample === undefined) say(`This report has no sample named “${wanted.get("sample")}”.`);
        const same = state.view === "target" && state.target === target;
        Object.assign(state, { view: "target", target, sample: sample ?? firstSample(target), filter: same ? state.filter : "all" });
        show();
        showTarget();
        wanted.has("sample") ? byId("browser").scrollIntoView({ block: "start" }) : scrollTo(0, 0);
        return;
      }
    }
    state.view = "overview";
    show();
    hash === "map" && byId("map-view") ? byId("map-view").scrollIntoView() : scrollTo(0, 0);
  };

  const follow = (link) => { history.pushState(null, "", link); go(); };
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || link.classList.contains("skip") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    follow(link.getAttribute("href"));
  });

  sointerSearch(byId("search"), byId("results"), [
    { kind: "output", names: data.targets, link: (i) => targetLink(i) },
    { kind: data.unitNoun, names: data.features, link: featureLink },
    { kind: "sample", names: data.samples, link: (i) => targetLink(state.target, i) },
  ], follow);

  // --- keys ---------------------------------------------------------------------------------------------------

  const step = (by) => {
    const shown = [...byId("list").children].map((option) => Number(option.dataset.sample)), at = shown.indexOf(state.sample);
    if (shown.length) chooseSample(shown[Math.max(0, Math.min(shown.length - 1, at < 0 ? 0 : at + by))]);
  };
  byId("list").addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -nSamples, End: nSamples }[event.key];
    if (!by) return;
    step(by);
    event.preventDefault();
  });
  byId("list").addEventListener("click", (event) => { const option = event.target.closest("[data-sample]"); if (option) chooseSample(Number(option.dataset.sample)); });
  byId("filter").addEventListener("change", (event) => {
    state.filter = event.target.value;
    fillList();
    if (!passes(state.sample)) step(0); else showSample();
  });
  const links = () => [...document.querySelectorAll("nav a")];
  document.querySelector("nav").addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, Home: -nTargets, End: nTargets }[event.key], all = links(), at = all.indexOf(document.activeElement);
    if (!by || at < 0) return;
    all[Math.max(0, Math.min(all.length - 1, at + by))].focus();
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    if (event.key === "/") byId("search").focus();
    else if ((event.key === "n" || event.key === "p") && state.view === "target") step(event.key === "n" ? 1 : -1);
    else return;
    event.preventDefault();
  });

  byId("target-links").replaceChildren(...data.targets.map((name, i) => make("li", {}, make("a", { href: targetLink(i), text: name, title: name, "data-target": i }))));
  for (const button of document.querySelectorAll("#outputs-table button")) button.addEventListener("click", () => {
    const now = button.closest("th").getAttribute("aria-sort");
    fillOutputs(button.dataset.by, now === "ascending");
  });
  fillDeciding(CARDS);
  fillOutputs(null, false);
  fillMap();
  state.sample = firstSample(0);
  showTarget();
  addEventListener("hashchange", go);
  go();
  document.body.dataset.ready = "yes";
})();
