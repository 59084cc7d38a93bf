"""usaddress: are the selected tokens the smallest that keep a label, and are direct and mediated effects told apart?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import SequenceExplainer
from sointer.masking.conditional import Replacement
from studies.frame.study import Case, Study
from studies.usaddress.crf import AddressCRF, load_sentences
from studies.usaddress.sets_page import CEILING, LIME, LOO, METHODS, NEAREST, OURS, RANDOM, SHAP, page
from studies.usaddress.truth import LEVEL, N_DRAWS, TOLERANCE, Truth, chosen_sentences, load_truth, subsets

SEEDS = (101, 102, 103)
"""Seeds that took no part in development."""
QUERIES, MORE_QUERIES = 100_000, 250_000
WINDOW = 2
"""Of one, effects from two places away would be mediated by construction."""
N_BASELINE_QUERIES = 200
"""Queries of the methods that query the model about every address, for all of its labels together."""
N_PATH_ADDRESSES, EFFECT = 60, 0.05


def cases(smoke: bool) -> Iterator[Case]:
    """Seed by seed: an early stop leaves fewer seeds, not fewer methods."""
    if smoke:
        yield from ({"method": method, "seed": 0, "queries": 600, "quick": True} for method in METHODS)
        return
    for seed in SEEDS:
        for method in METHODS:
            if method == OURS or seed == SEEDS[0]:  # of the others all but the last digit is the same
                yield {"method": method, "seed": seed, "queries": QUERIES}
    yield {"method": OURS, "seed": SEEDS[0], "queries": MORE_QUERIES}


def run(method: str, seed: int, queries: int, quick: bool = False) -> dict[str, Any]:
    truth = load_truth("report", 8, 4) if quick else load_truth("report", N_DRAWS)
    if method == OURS:
        explainer, seconds = fitted(seed, queries)
        found = {
            "fit_seconds": seconds,
            "held_out_agreement": explainer.held_out_agreement_,
            "paths": path_calls(explainer, chosen_sentences("report")[: 3 if quick else N_PATH_ADDRESSES]),
        }
        return {**own_sets(explainer, truth), **found}
    if method == CEILING:
        return ceiling(truth)
    tally, rng = SetTally(), np.random.default_rng(seed)
    crf, replacement = AddressCRF(), Replacement.of(load_sentences("train"))
    for one in truth:
        scores = baseline_scores(method, crf, replacement, one.tokens, rng)
        for i in range(len(one.tokens)):
            tally.add("given", one.kept.mean(0)[:, i], np.argsort(-scores[i], kind="stable")[: one.size(i)])
        tally.end_address()
    return tally.result()


@cache
def fitted(seed: int, queries: int) -> tuple[SequenceExplainer, float]:
    """The explainer of a seed, and how long its fit took on one core."""
    started = time.process_time()
    explainer = SequenceExplainer(
        AddressCRF(), query_budget=queries, window=WINDOW, random_state=seed, verbose=False
    ).fit(load_sentences("train"))
    return explainer, round(time.process_time() - started, 1)


# --- sufficient sets ---------------------------------------------------------------------------------------------


class SetTally:
    """Counts, address by address, the targets whose set is exact or within tolerance."""

    def __init__(self) -> None:
        self._of: dict[str, list[list[float]]] = {}
        self._now: dict[str, list[tuple[bool, bool, int]]] = {}

    def add(self, name: str, kept: NDArray[np.float32], chosen: Any) -> None:
        """One target: the share (subsets,) in which each subset keeps its label, and the tokens chosen."""
        n = len(kept).bit_length() - 1
        sizes = subsets(n).sum(1)
        code = sum(1 << (n - 1 - int(i)) for i in chosen)
        smallest, clearly = sizes[kept >= LEVEL].min(), sizes[kept >= LEVEL + TOLERANCE].min()
        exact = kept[code] >= LEVEL and sizes[code] == smallest
        within = kept[code] >= LEVEL - TOLERANCE and sizes[code] <= clearly
        self._now.setdefault(name, []).append((bool(exact), bool(within), int(sizes[code] - smallest)))

    def end_address(self) -> None:
        for name, rows in self._now.items():
            self._of.setdefault(name, []).append([len(rows), *np.sum(rows, axis=0).tolist()])
        self._now = {}

    def result(self) -> dict[str, Any]:
        """For each name, by address: targets, exact ones, those within tolerance, tokens beyond the smallest number."""
        return dict(self._of)


def own_sets(explainer: SequenceExplainer, truth: list[Truth]) -> dict[str, Any]:
    tally = SetTally()
    for one in truth:
        own = explainer.explain([one.tokens])
        for i in range(len(one.tokens)):
            kept, size = one.kept.mean(0)[:, i], one.size(i)
            tally.add("own", kept, own.selected[i][own.selected[i] >= 0])
            given = explainer.explain([one.tokens], target=i, k=size).selected[0] if size else ()
            tally.add("given", kept, given)
        tally.end_address()
    return tally.result()


def ceiling(truth: list[Truth]) -> dict[str, Any]:
    """Brute force with one half of the draws, judged by the other half."""
    tally = SetTally()
    for one in truth:
        n = len(one.tokens)
        sizes = subsets(n).sum(1)
        for i in range(n):
            for first, other in (one.kept[:, :, i], one.kept[::-1, :, i]):
                for name, by in (("own", first), ("given", other)):
                    codes = np.flatnonzero(sizes == sizes[by >= LEVEL].min())
                    tally.add(name, other, np.flatnonzero(subsets(n)[codes[first[codes].argmax()]]))
        tally.end_address()
    return tally.result()


def baseline_scores(
    method: str, crf: AddressCRF, replacement: Replacement, tokens: list[str], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Scores (targets, tokens) of another method for all labels of an address."""
    n = len(tokens)
    place = np.arange(n)
    if method == RANDOM:
        return rng.random((n, n))
    if method == NEAREST:  # of two at the same distance, either
        return -np.abs(place[:, None] - place) - 0.01 * rng.random((n, n))
    own = np.array(crf([tokens])[0])

    def stays(masks: NDArray[Any]) -> NDArray[np.float64]:
        keep = [mask > 0.5 for mask in masks]
        said = crf(replacement.draw([tokens] * len(keep), keep, rng))
        return np.array([[a == b for a, b in zip(labels, own, strict=True)] for labels in said], dtype=float)

    if method == LOO:
        n_draws = N_BASELINE_QUERIES // n
        masks = np.repeat(1 - np.eye(n), n_draws, axis=0)
        return np.asarray(1 - stays(masks).reshape(n, n_draws, n).mean(1).T)
    if method == SHAP:
        import shap

        values = shap.KernelExplainer(stays, np.zeros((1, n))).shap_values(
            np.ones((1, n)), nsamples=N_BASELINE_QUERIES, silent=True
        )
        return np.asarray(np.asarray(values)[0].T)
    assert method == LIME, method
    from lime.lime_base import LimeBase

    masks = np.vstack([np.ones(n), rng.random((N_BASELINE_QUERIES - 1, n)) < rng.random((N_BASELINE_QUERIES - 1, 1))])
    labels, distance = stays(masks), 1 - np.sqrt(masks.mean(1))  # the cosine distance of lime's texts
    regression = LimeBase(lambda d: np.sqrt(np.exp(-(d**2) / 0.25**2)), random_state=0)
    scores = np.zeros((n, n))
    for i in range(n):
        _, weights, *_ = regression.explain_instance_with_data(masks, labels, distance, i, n)
        for token, weight in weights:
            scores[i, token] = weight
    return scores


# --- paths -------------------------------------------------------------------------------------------------------


def path_calls(explainer: SequenceExplainer, sentences: list[list[str]]) -> dict[str, list[int]]:
    """By distance ("0", "1", "2+"): effects of the CRF above EFFECT, of these mediated in the CRF, mediated as the
    explainer says, and the same in both."""
    crf, rng = AddressCRF(), np.random.default_rng(5)
    calls: dict[str, list[int]] = {}
    for tokens in sentences:
        n = len(tokens)
        why = explainer.explain([tokens], k=n)
        traced = why.paths(n_draws=16)
        for i in range(n):
            for place, j in enumerate(why.selected[i].tolist()):
                total, direct, mediated = crf_effects(crf, explainer.replacement_, tokens, i, j, rng)
                if abs(total) > EFFECT:
                    truth, said = abs(mediated) > abs(direct), bool(traced.is_mediated[i, place])
                    of = calls.setdefault("2+" if abs(i - j) >= 2 else str(abs(i - j)), [0, 0, 0, 0])
                    for place_in, value in enumerate((1, truth, said, truth == said)):
                        of[place_in] += int(value)
    return calls


def crf_effects(
    crf: AddressCRF, replacement: Replacement, tokens: list[str], i: int, j: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """What replacing token j does to p(label of token i): in all, at position i alone, at all others alone."""
    n, n_draws = len(tokens), 64
    keep = [np.arange(n) != j] * n_draws
    other = crf.unary(np.array([crf.ids(one) for one in replacement.draw([tokens] * n_draws, keep, rng)]))
    own = crf.unary(np.array([crf.ids(tokens)]))
    label = int(crf.viterbi(np.array([crf.ids(tokens)]))[0, i])
    before = crf.marginals(own)[0, i, label]
    at = (np.arange(n) == i)[None, :, None]
    cases = (other, np.where(at, other, own), np.where(at, own, other))
    total, direct, mediated = (before - crf.marginals(case)[:, i, label].mean() for case in cases)
    return float(total), float(direct), float(mediated)


STUDY = Study("sets", cases, run, page)
