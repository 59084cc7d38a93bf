"use strict";
// Pictures as inline SVG: the map of coupled outputs, and the paths of features to a target.
const sointerCharts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const draw = (name, attributes = {}, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

  // names: all outputs; map: { outputs, strength, darkest }; choose(name) is called when a name or cell is clicked.
  const heatMap = (container, names, map, choose) => {
    const n = map.outputs.length, cell = Math.max(13, Math.min(30, Math.floor(560 / n))), most = 18;
    const longest = Math.max(...map.outputs.map((i) => short(names[i], most).length)), font = Math.min(13, cell * 0.8);
    const left = Math.ceil(longest * font * 0.6) + 10, top = Math.ceil(longest * font * 0.45) + 14, slanted = Math.ceil(longest * font * 0.45) + 8;
    const [width, height] = [left + n * cell + slanted, top + n * cell + 2];
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img", class: "heat",
      "aria-label": "How strongly each pair of outputs is coupled; the strongest pairs are listed beside the map" });
    const caption = container.querySelector("figcaption"), still = caption.textContent;
    map.outputs.forEach((output, row) => {
      const name = names[output], y = top + row * cell + cell / 2;
      const label = draw("text", { x: left - 5, y, "text-anchor": "end", "dominant-baseline": "central", "font-size": font, class: "label" }, short(name, most));
      const x = left + row * cell + cell / 2, head = draw("text", { transform: `translate(${x} ${top - 5}) rotate(-40)`, "font-size": font, class: "label" }, short(name, most));
      for (const node of [label, head]) {
        node.append(draw("title", {}, name));
        node.addEventListener("click", () => choose(name));
        svg.append(node);
      }
      map.strength[row].forEach((value, column) => {
        const other = names[map.outputs[column]];
        const box = draw("rect", { x: left + column * cell, y: top + row * cell, width: cell - 1.5, height: cell - 1.5, rx: 2,
          class: row === column ? "self" : "cell" });
        if (row !== column) {
          box.style.fillOpacity = Math.sqrt(value / map.darkest).toFixed(3);
          box.append(draw("title", {}, `${name} and ${other}: ${value}`));
          box.addEventListener("click", () => choose(name));
          box.addEventListener("pointerenter", () => { caption.textContent = `${name} and ${other}: ${value}`; });
        }
        svg.append(box);
      });
    });
    svg.addEventListener("pointerleave", () => { caption.textContent = still; });
    container.prepend(svg);
  };

  // Features at the left, the target at the right, other outputs between; lines as wide as the effects.
  const flow = (paths, features, outputs, target) => {
    const largest = Math.max(...paths.map((path) => Math.abs(path.total)), 1e-9), most = 22, step = 40;
    const shown = (effect) => Math.abs(effect) >= 0.06 * largest;
    const between = [...new Set(paths.flatMap((path) => path.through.filter(([, effect]) => shown(effect)).map(([output]) => output)))];
    const rows = Math.max(paths.length, between.length, 2), height = rows * step + 10, [left, middle, right] = [190, 400, 610];
    const place = (i, n) => 5 + step * (rows - n) / 2 + step * (i + 0.5);
    const svg = draw("svg", { viewBox: `0 0 800 ${height}`, class: "flow", role: "img",
      "aria-label": `How features reach ${target}: directly or through other outputs; the table has the same numbers` });
    const line = (x1, y1, x2, y2, effect, kind) => svg.append(draw("path", {
      d: `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`, class: `${kind}${effect < 0 ? " negative" : ""}`,
      "stroke-width": Math.max(1, 14 * Math.min(1, Math.abs(effect) / largest)).toFixed(1) }));
    const end = place(0, 1), levels = new Map(between.map((output, i) => [output, place(i, between.length)]));
    const carried = new Map();
    paths.forEach((path, i) => {
      const y = place(i, paths.length);
      if (shown(path.direct)) line(left, y, right, end, path.direct, "direct");
      for (const [output, effect] of path.through) if (shown(effect)) {
        line(left, y, middle, levels.get(output), effect, "through");
        if (Math.abs(effect) > Math.abs(carried.get(output) || 0)) carried.set(output, effect);
      }
    });
    for (const [output, effect] of carried) line(middle, levels.get(output), right, end, effect, "through");
    const node = (x, y, name, side) => {
      const text = short(name, most), width = 16 + 7.4 * text.length, from = side === "end" ? x - width : side === "start" ? x : x - width / 2;
      const label = draw("text", { x: from + width / 2, y, "text-anchor": "middle", "dominant-baseline": "central" }, text);
      label.append(draw("title", {}, name));
      svg.append(draw("rect", { x: from, y: y - 13, width, height: 26, rx: 6 }), label);
    };
    paths.forEach((path, i) => node(left, place(i, paths.length), features[path.feature], "end"));
    for (const [output, y] of levels) node(middle, y, outputs[output], "middle");
    node(right, end, target, "start");
    return svg;
  };
  // How the effect of a feature depends on its value: a dot for each sample, or a bar for each category; blue raises, orange lowers.
  // missing?: effects where the value is missing, in a column of their own; ends?: the range as text; nValues?: of how many categories.
  const partial = ({ values, effects, categories, missing, ends, nValues }, largest, { name, on, large = false }) => {
    const n = categories.length, slanted = large && n > 4;
    const [left, bottom, right, top] = large ? [56, slanted ? 84 : 34, 12, 10] : [2, 2, 2, 2], [width, height] = large ? [420, 176 + bottom] : [110, 36];
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: large ? "partial large" : "partial", role: "img", "aria-label": `Effect of ${name} on ${on}, by its value` });
    const low = Math.min(...values), span = Math.max(...values) - low || 1, most = Math.max(largest, 1e-12);
    const apart = missing ? (large ? 64 : 14) : 0, inner = width - left - right - apart;
    const x = (value) => left + inner * (n ? (value + 0.5) / n : (value - low) / span), beside = width - right - (large ? 24 : 5);
    const y = (effect) => top + (height - top - bottom) * (1 - effect / most) / 2, signed = (effect) => `${effect < 0 ? "−" : "+"}${Math.abs(effect)}`;
    const add = (node, shown, effect) => {
      if (large) node.append(draw("title", {}, `${shown}: ${signed(effect)}`));
      svg.append(node);
    };
    const dot = (cx, effect, kind) => draw("circle", { cx: cx.toFixed(1), cy: y(effect).toFixed(1), r: large ? 3.2 : 1.5, class: kind });
    svg.append(draw("line", { x1: left, x2: width - right, y1: y(0), y2: y(0), class: "zero" }));
    values.forEach((value, i) => {
      const kind = effects[i] < 0 ? "down" : "up", between = ends ? "" : ` = ${n ? categories[value] : value}`;
      const mark = n ? draw("rect", { x: x(value) - 0.35 * inner / n, width: 0.7 * inner / n, y: Math.min(y(0), y(effects[i])), height: Math.max(1, Math.abs(y(effects[i]) - y(0))), class: kind })
        : dot(x(value), effects[i], kind);
      add(mark, `${name}${between}`, effects[i]);
    });
    for (const effect of missing ?? []) add(dot(beside, effect, `${effect < 0 ? "down" : "up"} missing`), `${name} is missing`, effect);
    if (missing) svg.append(draw("line", { x1: width - right - apart + (large ? 16 : 4), x2: width - right - apart + (large ? 16 : 4), y1: top, y2: height - bottom, class: "zero" }));
    if (large) {
      const label = (text, at) => svg.append(draw("text", at, text)), under = height - bottom + 14;
      for (const effect of [most, 0, -most]) label(`${effect > 0 ? "+" : effect < 0 ? "−" : ""}${Number(Math.abs(effect).toPrecision(2))}`, { x: left - 6, y: y(effect), "text-anchor": "end", "dominant-baseline": "central" });
      if (slanted) categories.forEach((category, i) => label(short(category, 14), { transform: `translate(${x(i) + 4} ${under - 4}) rotate(-40)`, "text-anchor": "end" }));
      else if (n) categories.forEach((category, i) => label(short(category, Math.max(3, Math.floor(50 / n))), { x: x(i), y: under, "text-anchor": "middle" }));
      else [[low, "start"], [low + span, "end"]].forEach(([value, anchor], i) => label(ends ? ends[i] : value.toLocaleString("en", { maximumSignificantDigits: 6, useGrouping: Math.abs(value) >= 10000 }), { x: x(value), y: under, "text-anchor": anchor }));
      if (missing) label("missing", { x: beside, y: under, "text-anchor": "middle" });
      label(short(name, 40) + (nValues ? ` (the ${n} most frequent of ${nValues} values)` : ""), { x: left + inner / 2, y: height - 4, "text-anchor": "middle", class: "axis" });
    }
    return svg;
  };
  return { heatMap, flow, partial };
})();
