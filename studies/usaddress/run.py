"""usaddress: are the tokens that an explainer selects the smallest that keep a label?

    python -m studies.usaddress.truth report OUT/report.npz         brute force, about 10 minutes of one core
    python -m studies.usaddress.run fit OUT/why --queries 100000
    python -m studies.usaddress.run judge OUT/why OUT/report.npz    against brute force, beside other methods
    python -m studies.usaddress.run paths OUT/why                   direct or mediated, against the CRF itself
    python -m studies.usaddress.run speed OUT/why                   against shap's KernelExplainer

Needs `pip install usaddress lime shap` and usaddress.jsonl.gz in the directory that SOINTER_DATA names.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import SequenceExplainer
from sointer.masking.tokens import Replacement
from studies.usaddress.crf import AddressCRF, load_sentences, package_tagger
from studies.usaddress.truth import LEVEL, TOLERANCE, Truth, chosen_sentences, load_truth, subsets

N_RIVAL_QUERIES = 200
EFFECT = 0.05


# --- fit ---------------------------------------------------------------------------------------------------------


def fit(args: argparse.Namespace) -> None:
    started = time.process_time()
    explainer = SequenceExplainer(
        AddressCRF(), query_budget=args.queries, window=args.window, random_state=args.seed, verbose=True
    ).fit(load_sentences("train"))
    explainer.save(args.explainer)
    print(
        f"{explainer.n_queries_} queries, window {explainer.window_}, {time.process_time() - started:.0f} s of a core, "
        f"{explainer.held_out_agreement_:.3f} of held-out labels right"
    )


# --- sufficient sets ---------------------------------------------------------------------------------------------


class Tally:
    """Counts, for every method, exact sets and those within tolerance."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[bool, bool, int]]] = defaultdict(list)

    def add(self, method: str, kept: NDArray[np.float32], chosen: Any, n: int) -> None:
        """One target: the share (subsets,) in which each subset keeps its label, and the tokens chosen."""
        sizes = subsets(n).sum(1)
        code = sum(1 << (n - 1 - int(i)) for i in chosen)
        smallest, clearly = sizes[kept >= LEVEL].min(), sizes[kept >= LEVEL + TOLERANCE].min()
        exact = kept[code] >= LEVEL and sizes[code] == smallest
        within = kept[code] >= LEVEL - TOLERANCE and sizes[code] <= clearly
        self.found[method].append((bool(exact), bool(within), int(sizes[code] - smallest)))

    def show(self) -> None:
        print(f"{'method':56s} exact  within tolerance  size - smallest  targets")
        for method, rows in self.found.items():
            exact, within, extra = np.array(rows, dtype=float).mean(0)
            print(f"{method:56s} {exact:.3f}  {within:.3f}             {extra:+.2f}            {len(rows)}")


def judge(args: argparse.Namespace) -> None:
    crf, result, rng = AddressCRF(), Tally(), np.random.default_rng(7)
    explainer = SequenceExplainer.load(args.explainer, crf)
    for truth in load_truth(args.truth):
        tokens, n = truth.tokens, len(truth.tokens)
        own, ranked = explainer.explain([tokens]), explainer.explain([tokens], k=n)
        baselines = baseline_scores(crf, explainer.replacement_, tokens, rng)
        for i in range(n):
            kept = truth.kept.mean(0)[:, i]
            size = int(subsets(n).sum(1)[kept >= LEVEL].min())
            chosen = own.selected[i][own.selected[i] >= 0]
            result.add("SequenceExplainer, own size", kept, chosen, n)
            result.add("SequenceExplainer, size given", kept, ranked.selected[i][:size], n)
            for method, scores in baselines.items():
                result.add(f"{method}, size given", kept, np.argsort(-scores[i], kind="stable")[:size], n)
            ceiling(result, truth, i)
    result.show()


def ceiling(result: Tally, truth: Truth, i: int) -> None:
    """Brute force with one half of the draws, judged by the other half."""
    n = len(truth.tokens)
    sizes = subsets(n).sum(1)
    for one, other in (truth.kept[:, :, i], truth.kept[::-1, :, i]):
        for method, size in (
            ("own size", sizes[one >= LEVEL].min()),
            ("size given", sizes[other >= LEVEL].min()),
        ):
            codes = np.flatnonzero(sizes == size)
            chosen = np.flatnonzero(subsets(n)[codes[one[codes].argmax()]])
            result.add(f"ceiling: brute force by other draws, {method}", other, chosen, n)


def baseline_scores(
    crf: AddressCRF, replacement: Replacement, tokens: list[str], rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Scores (targets, tokens) of other methods; those that query do so 200 times for a sentence, for all targets."""
    import shap
    from lime.lime_base import LimeBase

    n = len(tokens)
    own = np.array(crf([tokens])[0])

    def stays(masks: NDArray[Any]) -> NDArray[np.float64]:
        keep = [mask > 0.5 for mask in masks]
        said = crf(replacement.draw([tokens] * len(keep), keep, rng))
        return np.array([[a == b for a, b in zip(labels, own, strict=True)] for labels in said], dtype=float)

    masks = np.vstack([np.ones(n), rng.random((N_RIVAL_QUERIES - 1, n)) < rng.random((N_RIVAL_QUERIES - 1, 1))])
    labels = stays(masks)
    distance = 1 - np.sqrt(masks.mean(1))  # the cosine distance of lime's texts
    regression = LimeBase(lambda d: np.sqrt(np.exp(-(d**2) / 0.25**2)), random_state=0)
    lime = np.zeros((n, n))
    for i in range(n):
        _, weights, *_ = regression.explain_instance_with_data(masks, labels, distance, i, n)
        for token, weight in weights:
            lime[i, token] = weight
    explainer = shap.KernelExplainer(stays, np.zeros((1, n)))
    values = explainer.shap_values(np.ones((1, n)), nsamples=N_RIVAL_QUERIES, silent=True)
    place = np.arange(n)
    return {
        "nearest tokens": -np.abs(place[:, None] - place) - 0.01 * rng.random((n, n)),
        "lime (its regression), 200 queries a sentence": lime,
        "shap KernelExplainer, 200 queries a sentence": np.asarray(values)[0].T,
        "random": rng.random((n, n)),
    }


# --- paths -------------------------------------------------------------------------------------------------------


def paths(args: argparse.Namespace) -> None:
    crf = AddressCRF()
    explainer = SequenceExplainer.load(args.explainer, crf)
    rng, rows = np.random.default_rng(5), []
    for tokens in chosen_sentences("report")[:60]:
        n = len(tokens)
        why = explainer.explain([tokens], k=n)
        traced = why.paths(n_draws=16)
        for i in range(n):
            for place, j in enumerate(why.selected[i].tolist()):
                total, direct, mediated = crf_effects(crf, explainer.replacement_, tokens, i, j, rng)
                if abs(total) > EFFECT:
                    rows.append((abs(i - j), abs(mediated) > abs(direct), bool(traced.is_mediated[i, place])))
    table = np.array(rows)
    print(f"window {explainer.window_}; effects above {EFFECT} in the CRF")
    print("distance  effects  CRF: mediated  explainer: mediated  same call")
    for name, of_distance in (
        *((str(d), table[:, 0] == d) for d in range(3)),
        ("3+", table[:, 0] >= 3),
        ("2+", table[:, 0] >= 2),
    ):
        part = table[of_distance]
        same = (part[:, 1] == part[:, 2]).mean()
        crf_share, own_share = part[:, 1].mean(), part[:, 2].mean()
        print(f"{name:8s}  {len(part):7d}  {crf_share:.3f}          {own_share:.3f}                {same:.3f}")


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


# --- speed -------------------------------------------------------------------------------------------------------


def speed(args: argparse.Namespace) -> None:
    import shap

    explainer = SequenceExplainer.load(args.explainer, package_tagger)
    sentences, n_labels = [], 0
    source = load_sentences("test") + load_sentences("train")
    while n_labels < args.labels:
        sentences.append(source[len(sentences) % len(source)])
        n_labels += len(sentences[-1])
    started = time.process_time()
    explainer.explain(sentences)
    ours = (time.process_time() - started) / n_labels
    print(f"SequenceExplainer: {n_labels} labels, {1e6 * ours:.0f} us each, predictions included")

    rng, sample = np.random.default_rng(0), chosen_sentences("report")[:15]
    for alone in (True, False):
        started, done = time.process_time(), 0
        for tokens in sample:
            n = len(tokens)
            own = package_tagger([tokens])[0]
            targets = range(min(n, 3)) if alone else (None,)
            for target in targets:

                def stays(masks: NDArray[Any], tokens: Any = tokens, own: Any = own, target: Any = target) -> Any:
                    drawn = explainer.replacement_.draw([tokens] * len(masks), [m > 0.5 for m in masks], rng)
                    same = np.array([[a == b for a, b in zip(y, own, strict=True)] for y in package_tagger(drawn)])
                    return same.astype(float) if target is None else same[:, target].astype(float)

                # Ten draws of what stands in for removed tokens, as many as shap's background would have rows.
                kernel = shap.KernelExplainer(stays, np.zeros((10, n)))
                kernel.shap_values(np.ones((1, n)), silent=True)
                done += n if target is None else 1
        theirs = (time.process_time() - started) / done
        how = "one call per label" if alone else "one call for all labels of a sentence"
        print(f"shap KernelExplainer, 10 draws, nsamples='auto', {how}: {1e3 * theirs:.1f} ms, {theirs / ours:.0f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (fit, judge, paths, speed):
        command = commands.add_parser(function.__name__)
        command.add_argument("explainer", type=Path)
        command.set_defaults(run=function)
        if function is fit:
            command.add_argument("--queries", type=int, default=100_000)
            command.add_argument("--window", type=int, default=2)
            command.add_argument("--seed", type=int, default=0)
        elif function is judge:
            command.add_argument("truth", type=Path)
        elif function is speed:
            command.add_argument("--labels", type=int, default=100_000)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
