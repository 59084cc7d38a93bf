"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { make, number, render } = sointerExplanation;
  const byId = (id) => document.getElementById(id);
  const form = byId("form");
  if (!form) { document.body.dataset.ready = "yes"; return; }
  const isText = data.takes === "texts", isSequence = data.takes === "sequences";
  let latest = 0;

  // Tokens between blanks, unless some would not come back as they were.
  const joined = (tokens) => tokens.some((token) => !token || /\s/.test(token)) || tokens[0].startsWith("[") ? JSON.stringify(tokens) : tokens.join(" ");
  const written = (row) => isSequence && Array.isArray(row) ? joined(row) : typeof row === "string" ? row : `{\n${Object.entries(row).map(([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(",\n")}\n}`;
  const unquoted = (text) => text.trim().replace(/^"(.*)"$/, "$1");
  const known = new Set(data.features), nameFrom = (text) => known.has(text.trim()) ? text.trim() : unquoted(text);
  const cell = (text) => { const plain = unquoted(text); return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : plain; };

  // What was pasted: a text; JSON; or values in the order of the features, perhaps below a line of names.
  const rowFrom = (pasted) => {
    if (isText) return pasted;
    const text = pasted.trim();
    if (!text) throw new Error(isSequence ? "There are no tokens yet: paste some." : "There is no row yet: paste one.");
    if (isSequence && !text.startsWith("[")) return text.split(/\s+/);
    if (text.startsWith("{") || text.startsWith("[")) {
      let row;
      try { row = JSON.parse(text); } catch (error) { throw new Error(`The row looks like JSON, but is not: ${error.message}`); }
      return !isSequence && Array.isArray(row) && row.length === 1 && typeof row[0] === "object" ? row[0] : row;
    }
    const lines = text.split(/\r?\n/).filter((line) => line.trim());
    const separator = [/\t/, /;/, /,/].find((one) => one.test(lines[0])) || /\s+/;
    const parts = (lines.length === 2 || lines.length === 1 ? lines : [lines.join(",")]).map((line) => line.split(separator));
    const [first, second] = parts;
    if (second) return Object.fromEntries(first.map((name, i) => [nameFrom(name), cell(second[i] ?? "")]));
    return first.map(cell);
  };

  const shown = (value) => {
    if (value === undefined) return "";
    if (value === null) return "missing";
    if (typeof value === "number") return number(value);
    if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name}=${shown(one)}`).join(", ");
    return String(value);
  };
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const fail = (text) => { byId("error").textContent = text; byId("error").hidden = !text; };
  const sampleName = () => {
    const chosen = byId("example") && data.examples[Number(byId("example").value)];
    return chosen && written(chosen.row) === byId("row").value ? chosen.name : "as given";
  };

  const showCommand = (question) => {
    byId("command").textContent = `curl ${location.origin}/explain -H 'Content-Type: application/json'${data.needsToken ? ' -H "Authorization: Bearer $SOINTER_TOKEN"' : ""} -d ${quoted(JSON.stringify(question))}`;
    byId("again").hidden = false;
  };
  // The texts among the columns of a row as one, and where the words of each begin in it.
  const textsOf = (row) => {
    const begins = {}, texts = [];
    let begin = 0;
    for (const name of data.textColumns) {
      const text = String(Array.isArray(row) ? row[data.features.indexOf(name)] : row[name]);
      begins[name] = begin;
      texts.push(text);
      begin += Array.from(text).length + 1;
    }
    const joinedSpans = (spans) => spans && Object.entries(spans).flatMap(([name, own]) => own.map(([start, end]) => [start + begins[name], end + begins[name]]));
    return { text: texts.join("\n"), joinedSpans };
  };
  const show = (row, question, reply) => {
    if (isSequence) return void sointerSequence.render(byId("record"), reply.rows[0], "the tokens")(0);
    const { target, value, kind, value_source: valueSource, features, agreement, verdict, far, effects, where } = reply.rows[0];
    const texts = data.textColumns.length ? textsOf(row) : null;
    const isProbability = kind === "probability" && typeof value === "number";
    render(byId("record"), {
      sample: sampleName(), target, value: isProbability ? String(Number(value > 0.5)) : shown(value), valueSource, isProbability,
      confirmed: verdict === undefined ? null : verdict === "confirmed", unsure: verdict === "unsure", agreement,
      number: isProbability || (typeof value === "number" && !Number.isInteger(value)) ? value : null,
      features: features.map((feature) => ({ ...feature, value: shown(feature.value), ...(texts ? { spans: texts.joinedSpans(feature.spans) } : {}) })),
      effects: effects ? { on: effects.on, base: effects.base_value, others: effects.of_others, start: effects.from } : null,
      place: where && where !== "everywhere" ? { where } : null,
      text: isText ? row : texts ? texts.text : null, isTable: !isText, words: data.missingIsZero && !Array.isArray(row) ? Object.keys(row) : null,
    });
    byId("far").hidden = !far;
  };

  const ask = async () => {
    const turn = ++latest, button = byId("ask");
    document.body.dataset.state = "asking";
    fail("");
    try {
      const row = rowFrom(byId("row").value), k = byId("k").value;
      const question = isSequence ? { rows: [row], paths: row.length <= 200 } : { rows: [row], target: byId("target").value };
      if (k) question.k = Number(k);
      if (byId("verify")?.checked) question.verify = true;
      button.disabled = true;
      const response = await fetch("explain", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) })
        .catch(() => { throw new Error("The server does not answer; is it still running?"); });
      const reply = await response.json().catch(() => ({ error: `The server replied ${response.status}.` }));
      if (turn !== latest) return;
      if (!response.ok) throw new Error(reply.error);
      show(row, question, reply);
      showCommand(question);
    } catch (error) {
      if (turn !== latest) return;
      fail(error.message);
      byId("record").replaceChildren();  // an earlier answer must not look like this one's
      byId("again").hidden = byId("far").hidden = true;
    } finally {
      if (turn === latest) { button.disabled = false; document.body.dataset.state = "done"; byId("shown").scrollIntoView({ block: "nearest" }); }
    }
  };

  byId("target")?.replaceChildren(...data.targets.map((text) => make("option", { text, value: text })));
  if (Number.isInteger(data.k)) byId("k").value = data.k;
  else byId("k").placeholder = "auto";
  if (byId("names")) byId("names").textContent = data.features.join(", ") + (data.nFeatures > data.features.length ? ` and ${data.nFeatures - data.features.length} more` : "");
  const pick = byId("example");
  if (pick) {
    pick.replaceChildren(...data.examples.map(({ name }, i) => make("option", { text: name, value: i })));
    pick.addEventListener("change", () => { byId("row").value = written(data.examples[Number(pick.value)].row); ask(); });
    byId("row").value = written(data.examples[0].row);
  } else if (data.typical !== null) byId("row").value = written(data.typical);
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  byId("target")?.addEventListener("change", () => { if (document.body.dataset.state) ask(); });
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); } });
  document.body.dataset.ready = "yes";
})();
