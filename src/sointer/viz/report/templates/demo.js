"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const FULL_INK = 16;
  const byId = (id) => document.getElementById(id);
  const thumbs = byId("thumbs"), display = byId("display"), image = byId("image");
  const state = { example: 0, segment: 0 };

  const make = (name, attributes, parent, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };

  const drawPixels = (svg, pixels) => pixels.forEach((row, y) => row.forEach((value, x) => {
    make("rect", { class: "blank", x, y, width: 1, height: 1 }, svg);
    if (value > 0) make("rect", { class: "cell", x, y, width: 1, height: 1, "fill-opacity": (0.85 * value) / FULL_INK }, svg);
  }));

  const say = (node, ...parts) => {
    node.replaceChildren(...parts.map((part) => {
      if (typeof part === "string") return part;
      const strong = document.createElement("strong");
      strong.className = part.kind;
      strong.textContent = part.text;
      return strong;
    }));
  };

  const center = (points) => {
    const pairs = points.split(" ").map((pair) => pair.split(",").map(Number));
    return [0, 1].map((axis) => pairs.reduce((sum, pair) => sum + pair[axis], 0) / pairs.length);
  };

  const words = (list) => list.join(", ");

  function show() {
    const example = data.examples[state.example], segment = state.segment, lit = example.lit[segment];
    [...thumbs.children].forEach((button, i) => mark(button, i === state.example));
    display.querySelectorAll(".segment").forEach((node, i) => {
      node.classList.toggle("lit", example.lit[i]);
      node.setAttribute("aria-label", `segment ${data.names[i]}, ${example.lit[i] ? "on" : "off"}`);
      mark(node, i === segment);
    });
    display.querySelectorAll(".letter").forEach((node, i) => node.classList.toggle("lit", example.lit[i]));
    image.replaceChildren();
    image.classList.toggle("lit-target", lit);
    drawPixels(image, example.pixels);
    const width = example.pixels[0].length;
    example.selected[segment].forEach((pixel, rank) => {
      const x = pixel % width, y = Math.floor(pixel / width);
      make("rect", { class: "chosen", x: x + 0.055, y: y + 0.055, width: 0.89, height: 0.89 }, image);
      make("text", { class: "rank", x: x + 0.5, y: y + 0.53 }, image, rank + 1);
    });
    say(byId("answer"), "For this image (", example.title, ") the model says that segment ", data.names[segment],
      " is ", { kind: lit ? "on" : "off", text: lit ? "on" : "off" }, ".");
    say(byId("check"), "With only the outlined pixels kept, and all others taken from another digit at random, it says " +
      `the same in ${Math.round(100 * example.kept[segment])}% of draws.`);
    const wrong = data.names.filter((_, i) => example.lit[i] !== example.truth[i]);
    say(byId("mistake"), wrong.length ? `The model is wrong about this image, in: ${words(wrong)}.` : "");
  }

  const mark = (node, chosen) => {
    node.setAttribute("aria-checked", String(chosen));
    node.setAttribute("tabindex", chosen ? "0" : "-1");
  };

  // One tab stop per group; arrow keys move inside it.
  const choosable = (group, nodes, key) => {
    const choose = (i) => { state[key] = i; show(); };
    nodes.forEach((node, i) => {
      node.setAttribute("role", "radio");
      node.addEventListener("click", () => choose(i));
    });
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const at = nodes.indexOf(document.activeElement);
      if (at < 0) return;
      if (event.key === " " || event.key === "Enter") choose(at);
      else if (step) {
        const next = (at + step + nodes.length) % nodes.length;
        choose(next);
        nodes[next].focus();
      } else return;
      event.preventDefault();
    });
  };

  const buttons = data.examples.map((example) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = example.mistake ? "mistake" : "";
    button.setAttribute("aria-label", example.title + (example.mistake ? ", which the model gets wrong" : ""));
    const size = example.pixels.length;
    drawPixels(make("svg", { viewBox: `0 0 ${size} ${size}`, "aria-hidden": "true" }, button), example.pixels);
    button.append(example.title + (example.mistake ? " ✗" : ""));
    thumbs.append(button);
    return button;
  });
  const segments = data.polygons.map((points) => make("polygon", { class: "segment", points }, display));
  data.polygons.forEach((points, i) => {
    const [x, y] = center(points);
    make("text", { class: "letter", x, y }, display, data.names[i].split(" ")[0]);
  });
  choosable(thumbs, buttons, "example");
  choosable(display, segments, "segment");
  show();
})();
