"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { height, width, stride, gridHeight, gridWidth, nothing } = data;
  const byId = (id) => document.getElementById(id);
  const strip = byId("strip"), stage = byId("stage"), image = byId("image"), mask = byId("mask"), slider = byId("k");
  const FAINTEST = 0.22, STRONGEST = 0.72, RIM = "rgb(26, 26, 26)", HIDDEN = "rgb(127, 132, 140)";
  const scale = Math.max(2, Math.round(960 / Math.max(height, width)));
  // `held` is the target that was clicked or moved to by keys, `pointed` the one under the mouse; [row, column] of the grid.
  const state = { image: 0, held: [gridHeight >> 1, gridWidth >> 1], pointed: null, k: data.k, alone: false };

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const unpacked = new Map();
  const unpack = (key, i, Type) => {
    const name = `${key} ${i}`;
    if (!unpacked.has(name)) unpacked.set(name, new Type(bytes(data[key][i]).buffer));
    return unpacked.get(name);
  };
  const css = ([red, green, blue], alpha = 1) => `rgba(${red}, ${green}, ${blue}, ${alpha})`;

  const paint = (canvas, colourOf) => {
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), pixels = context.createImageData(width, height);
    for (let pixel = 0; pixel < height * width; pixel++) {
      pixels.data.set(colourOf(pixel), 4 * pixel);
      pixels.data[4 * pixel + 3] = 255;
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  };
  const paintImage = (i, canvas = document.createElement("canvas")) => {
    const rgb = unpack("images", i, Uint8Array);
    return paint(canvas, (pixel) => rgb.subarray(3 * pixel, 3 * pixel + 3));
  };
  const paintMask = (i) => {
    const codes = unpack("outputs", i, Uint8Array);
    return paint(document.createElement("canvas"), (pixel) => data.colours[codes[pixel]]);
  };

  // Which pixels each selected unit has: itself, unless units are patches or superpixels.
  const unitPixels = new Map();
  const members = (i, unit) => {
    if (!data.units) return [unit];
    if (!unitPixels.has(i)) {
      const lists = new Map();
      unpack("units", i, Uint16Array).forEach((of, pixel) => lists.has(of) ? lists.get(of).push(pixel) : lists.set(of, [pixel]));
      unitPixels.set(i, lists);
    }
    return unitPixels.get(i).get(unit) || [];
  };

  const borders = (context, labels, colour, thickness) => {
    const at = (y, x) => (y < 0 || x < 0 || y >= height || x >= width ? -1 : labels[y * width + x]);
    context.beginPath();
    for (let y = 0; y <= height; y++) for (let x = 0; x <= width; x++) {
      if (at(y, x) !== at(y - 1, x)) { context.moveTo(x * scale, y * scale); context.lineTo((x + 1) * scale, y * scale); }
      if (at(y, x) !== at(y, x - 1)) { context.moveTo(x * scale, y * scale); context.lineTo(x * scale, (y + 1) * scale); }
    }
    context.lineCap = "square";
    for (const [style, extra] of [[RIM, 1.6], [css(colour), 0]]) {
      context.strokeStyle = style;
      context.lineWidth = thickness + extra;
      context.stroke();
    }
  };

  const draw = (canvas, base, view, withFill) => {
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(base, 0, 0, canvas.width, canvas.height);
    view.ranks.forEach((rank, pixel) => {
      if (!withFill || (rank < 0) !== state.alone) return;
      const share = rank / Math.max(view.units.length - 1, 1);
      context.fillStyle = rank < 0 ? HIDDEN : css(data.green, STRONGEST - (STRONGEST - FAINTEST) * share);
      context.fillRect((pixel % width) * scale, Math.floor(pixel / width) * scale, scale, scale);
    });
    borders(context, data.units ? view.ranks : view.ranks.map((rank) => Math.min(rank, 0)), data.green, 3);
    const target = new Int32Array(height * width).fill(-1);
    target[view.pixel] = 0;
    borders(context, target, data.red, 6);
  };

  const say = (node, ...parts) => node.replaceChildren(...parts.map((part) => {
    if (typeof part === "string") return part;
    const strong = document.createElement("strong");
    strong.className = part.kind || "";
    strong.textContent = part.text;
    return strong;
  }));

  const bases = new Map();
  const baseOf = (i) => {
    if (!bases.has(i)) bases.set(i, [paintImage(i), paintMask(i)]);
    return bases.get(i);
  };

  const look = () => {
    const i = state.image, [gridRow, gridColumn] = state.pointed || state.held;
    const number = gridRow * gridWidth + gridColumn, row = gridRow * stride, column = gridColumn * stride;
    const all = [...unpack("selected", i, Uint16Array).subarray(number * data.k, (number + 1) * data.k)];
    const units = all.slice(0, state.k).filter((unit) => unit !== nothing);
    const ranks = new Int32Array(height * width).fill(-1), lit = [];
    units.forEach((unit, rank) => members(i, unit).forEach((pixel) => { ranks[pixel] = rank; lit.push(pixel); }));
    const total = all.filter((unit) => unit !== nothing).length, pixel = row * width + column;
    const code = unpack("outputs", i, Uint8Array)[pixel];
    const answer = data.values ? unpack("values", i, Float32Array)[pixel].toPrecision(3) : data.labels[code];
    const confirmed = data.confirmed ? Boolean(unpack("confirmed", i, Uint8Array)[number]) : null;
    const unsure = data.unsure ? Boolean(unpack("unsure", i, Uint8Array)[number]) : false;
    const known = data.known ? Boolean(unpack("known", i, Uint8Array)[number]) : true;
    return { i, row, column, pixel, units, ranks, lit, total, answer, confirmed, unsure, known };
  };

  const show = () => {
    const view = look(), [photo, labels] = baseOf(view.i), unit = data.units ? "group" : "pixel";
    const many = (n) => `${n} ${unit}${n === 1 ? "" : "s"}`;
    draw(image, photo, view, true);
    draw(mask, labels, view, false);
    [...strip.children].forEach((button, i) => button.setAttribute("aria-current", String(i === view.i)));
    say(byId("name"), data.names[view.i]);
    say(byId("answer"), "The model predicts that ", { kind: "red", text: `pixel (${view.row}, ${view.column})` }, " is ",
      { text: view.answer }, ".");
    // Under the red frame, green is easily overlooked.
    const own = view.ranks[view.pixel] < 0 ? "" : `, ${view.units.length === 1 ? "" : "one of them "}${data.units ? "around it" : "the pixel itself"}`;
    say(byId("because"), ...(view.units.length ? ["Decided mostly by the ", { kind: "green", text: many(view.units.length) },
      ` in green${own}.`] : [`No ${unit} was chosen for it.`]));
    const check = byId("check"), whole = view.units.length < view.total ? ` (checked with all ${view.total})` : "";
    check.className = view.confirmed === null ? "" : view.confirmed ? "yes" : view.unsure ? "unsure" : "no";
    say(check, view.confirmed === null ? "" : view.confirmed
      ? `✓ Confirmed: shown nothing else, the model predicts the same${whole}.`
      : view.unsure ? `≈ Unsure: shown nothing else, the model predicts the same in some draws only${whole}.`
      : `✗ Refuted: shown nothing else, the model predicts something else${whole}.`);
    say(byId("unknown"), view.known ? "" :
      "A guess: no image that was learned from has another label here, so nothing could be learned about it.");
    say(byId("shown"), `${view.units.length} of ${view.total}`);
    slider.max = Math.max(view.total, 1);
    slider.value = state.k;
    Object.assign(stage.dataset, { image: view.i, row: view.row, column: view.column, k: state.k, answer: view.answer,
      lit: view.lit.join(" "), confirmed: check.className || "unknown", known: view.known, alone: state.alone });
  };

  const choose = (i) => {
    state.image = (i + data.names.length) % data.names.length;
    const button = strip.children[state.image];
    strip.scrollLeft = button.offsetLeft - strip.offsetLeft - (strip.clientWidth - button.clientWidth) / 2;
    show();
  };

  data.names.forEach((name, i) => {
    const button = document.createElement("button"), caption = document.createElement("span");
    button.type = "button";
    button.title = caption.textContent = name;
    button.append(paintImage(i, document.createElement("canvas")), caption);
    button.addEventListener("click", () => choose(i));
    strip.append(button);
  });

  const legend = byId("legend");
  const swatch = (background, text, kind = "") => {
    const item = document.createElement("li"), box = document.createElement("i");
    box.style.background = background;
    box.className = kind;
    item.append(box, text);
    legend.append(item);
  };
  if (data.values) {
    const [low, high] = [data.colours[0], data.colours[data.colours.length - 1]].map((colour) => css(colour));
    swatch(`linear-gradient(90deg, ${low}, ${high})`, `${data.labels[0]} to ${data.labels[1]}`, "ramp");
  } else data.labels.forEach((label, code) => swatch(css(data.colours[code]), label));

  // The target nearest to the mouse.
  const under = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const nearest = (share, size, count) =>
      Math.min(count - 1, Math.max(0, Math.round(Math.min(size - 1, Math.max(0, Math.floor(share * size))) / stride)));
    return [nearest((event.clientY - box.top) / box.height, height, gridHeight),
      nearest((event.clientX - box.left) / box.width, width, gridWidth)];
  };
  const same = (a, b) => a !== null && b !== null && a[0] === b[0] && a[1] === b[1];
  for (const canvas of [image, mask]) {
    canvas.addEventListener("pointermove", (event) => {
      const now = under(event);
      if (event.pointerType === "touch" || same(now, state.pointed)) return;
      state.pointed = now;
      show();
    });
    canvas.addEventListener("pointerleave", () => { if (state.pointed) { state.pointed = null; show(); } });
    canvas.addEventListener("click", (event) => { state.held = under(event); state.pointed = null; show(); });
  }

  slider.addEventListener("input", () => { state.k = slider.value === slider.max ? data.k : Number(slider.value); show(); });
  byId("alone").addEventListener("change", (event) => { state.alone = event.target.checked; show(); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (move && event.target !== slider) {
      const [row, column] = state.held;
      state.held = [Math.min(gridHeight - 1, Math.max(0, row + move[0])),
        Math.min(gridWidth - 1, Math.max(0, column + move[1]))];
      state.pointed = null;
      show();
    } else if (event.key === "n" || event.key === "p") choose(state.image + (event.key === "n" ? 1 : -1));
    else return;
    event.preventDefault();
  });
  show();
})();
