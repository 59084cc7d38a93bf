"use strict";
// The packed samples of a report, unpacked one at a time when someone looks at them.
const sointerUnpack = (data) => {
  const TYPES = { u1: Uint8Array, "<u2": Uint16Array, "<u4": Uint32Array, i1: Int8Array, "<i2": Int16Array, "<f4": Float32Array };
  const AGREEMENT_STEPS = 250, NOT_QUERIED = 255, SCORE_STEPS = 127, EFFECT_STEPS = 32767;
  const kinds = { features: data.types.feature, words: data.types.word, positions: data.types.position, steps: "i1", largest: "<f4",
    values: data.types.value, agreement: "u1", difference: "<f4", numbers: "<f4", present: data.types.feature,
    needed: "u1", effectSteps: "<i2", largestEffect: "<f4", base: "<f4", total: "<f4", more: "<u2", locality: "u1" };
  const none = 2 ** (8 * TYPES[data.types.position].BYTES_PER_ELEMENT) - 1;
  const cache = new Map();
  const unpack = (text, kind) => text === null ? null : new TYPES[kind](Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  const block = (sample) => {
    if (!cache.has(sample)) {
      const packed = data.blocks[sample];
      cache.set(sample, Object.fromEntries(data.fields.map((field, i) => [field, unpack(packed[i], kinds[field])])));
    }
    return cache.get(sample);
  };
  const agreement = (sample, target) => {
    const level = block(sample).agreement[target];
    return level === NOT_QUERIED ? null : level / AGREEMENT_STEPS;
  };
  const differenceOf = (sample, target) => { const { difference } = block(sample); return difference && !Number.isNaN(difference[target]) ? difference[target] : null; };
  const numberOf = (sample, target) => { const { numbers } = block(sample); return numbers ? numbers[target] : null; };
  const chosen = (sample, target) => {
    const { features, words, positions, steps, largest, needed, effectSteps, largestEffect } = block(sample), found = [];
    for (let i = target * data.k; i < (target + 1) * data.k; i++) if (positions[i] !== none)
      found.push({ feature: features[positions[i]], value: data.words[words[positions[i]]], score: steps[i] / SCORE_STEPS * largest[target],
        needed: needed ? needed[i] === 1 : undefined, effect: effectSteps ? effectSteps[i] / EFFECT_STEPS * largestEffect[target] : undefined });
    return found;
  };
  // Where effects begin, and the sum of those that are not listed.
  const effects = (sample, target) => {
    const { base, total } = block(sample);
    if (!base) return null;
    const listed = chosen(sample, target).reduce((sum, { effect }) => sum + effect, 0);
    return { base: base[target], others: total[target] - base[target] - listed };
  };
  // How many samples need a feature, for each target.
  let counts = null;
  const uses = (feature) => {
    if (!counts) {
      const n = data.targets.length;
      counts = new Map();
      data.samples.forEach((_, sample) => {
        const { features, positions, needed } = block(sample);
        positions.forEach((position, i) => {
          if (position === none || (needed && !needed[i])) return;
          const key = features[position];
          if (!counts.has(key)) counts.set(key, new Uint32Array(n));
          counts.get(key)[Math.floor(i / data.k)]++;
        });
      });
    }
    return counts.get(feature) || new Uint32Array(data.targets.length);
  };
  return { block, agreement, differenceOf, numberOf, chosen, effects, uses };
};
