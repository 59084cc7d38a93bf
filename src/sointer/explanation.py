"""Explanation: what was selected, for which target, and whether the black box says the same."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer.blackbox import BlackBox
from sointer.blackbox.replies import stack
from sointer.containers import is_sparse
from sointer.errors import InputError, require_extra
from sointer.groups import Groups
from sointer.inputs import InputFormat
from sointer.outputs import Outputs
from sointer.paths import Paths, Trace
from sointer.removal import Background, Removal, make_removal
from sointer.selection import first_units
from sointer.validation import check_positive_int

if TYPE_CHECKING:
    import pandas as pd

ASK_ROWS = 4096


@dataclass(frozen=True)
class Verification:
    """What the black box said about rows reduced to their selected features."""

    agreement: NDArray[np.float64]
    """For each row, the share of draws in which the target kept its value."""
    difference: NDArray[np.float64]
    """For each row, how far the target moved on average: labels 0 or 1, probabilities |p - q|, else in deviations."""
    n_queries: int

    @property
    def fidelity(self) -> float:
        """Mean agreement over the rows."""
        return float(self.agreement.mean())

    @property
    def confirmed(self) -> NDArray[np.bool_]:
        """Rows on which every draw agreed."""
        return np.asarray(self.agreement == 1.0)

    def __repr__(self) -> str:
        return (
            f"Verification(fidelity={self.fidelity:.3f}, confirmed {int(self.confirmed.sum())} of "
            f"{len(self.agreement)} rows, n_queries={self.n_queries})"
        )


@dataclass(frozen=True)
class Source:
    """Where explained rows come from: what is needed to ask the black box about them again."""

    black_box: BlackBox | None
    input_format: InputFormat
    removal: Removal
    outputs: Outputs
    groups: Groups
    background: Background
    data: Any
    predicted: NDArray[Any] | None = None
    """What the black box said about the whole rows, if the caller knew it."""

    @cached_property
    def answers(self) -> NDArray[Any]:
        """What the black box said about the whole rows, according to the caller or, asked once, to itself."""
        return self.asked if self.predicted is None else self.predicted

    @cached_property
    def asked(self) -> NDArray[Any]:
        """What the black box itself says about the whole rows; asked once."""
        return stack([self.ask(self.data[rows]) for rows in self._chunks(self.data.shape[0])])

    @property
    def known_answers(self) -> NDArray[Any] | None:
        """`answers`, if they were given or asked for already."""
        return self.__dict__.get("asked") if self.predicted is None else self.predicted

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Encoded rows, dense."""
        chosen = self.data[index]
        return np.asarray(chosen.toarray() if is_sparse(chosen) else chosen, dtype=np.float64)

    def ask(self, points: Any) -> NDArray[Any]:
        """What the black box says about encoded points, dense or CSR."""
        if self.black_box is None:
            raise InputError(
                "this explanation has no black box to ask; load the explainer with "
                "sointer.load(path, black_box=model), then explain again."
            )
        replies = self.black_box(self.input_format.decode(points))
        if replies.shape[1] != self.outputs.n_outputs:
            raise InputError(
                f"the black box returned {replies.shape[1]} outputs, but the explainer was fitted on "
                f"{self.outputs.n_outputs}; give the model that was explained."
            )
        return replies

    def agreement(
        self,
        keep_units: NDArray[np.bool_],
        targets: NDArray[np.int64],
        *,
        rows: NDArray[np.int64],
        n_draws: int,
        seed: int,
    ) -> NDArray[np.float64]:
        """Share of draws in which each row, reduced to `keep_units`, kept its target's value."""
        parts = [
            self._agreement(keep_units[some], targets[some], rows[some], n_draws, seed)
            for some in self._chunks(len(rows))
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _agreement(
        self,
        keep_units: NDArray[np.bool_],
        targets: NDArray[np.int64],
        rows: NDArray[np.int64],
        n_draws: int,
        seed: int,
    ) -> NDArray[np.float64]:
        original, at = self.answers[rows], (np.arange(len(rows)), targets)
        rng = np.random.default_rng(seed)  # the same for every part, so that all rows see the same draws
        if not self.removal.is_random:
            reduced = self.ask_reduced(self.removal, keep_units, rows, rng)
            return self.outputs.agree(original, reduced)[at].astype(np.float64)
        draws = self.removal.draws(self.rows(rows), self.groups.to_columns(keep_units), n_draws, rng)
        return np.asarray(np.mean([self.outputs.agree(original, self.ask(points))[at] for points in draws], axis=0))

    def ask_reduced(
        self, removal: Removal, keep_units: NDArray[np.bool_], rows: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[Any]:
        """What the black box says about rows reduced to `keep_units`; a few rows are made dense at a time."""
        return stack(
            [
                self.ask(removal.reduce(self.data[rows[some]], self.groups.to_columns(keep_units[some]), rng))
                for some in self._chunks(len(rows))
            ]
        )

    @staticmethod
    def _chunks(n: int) -> list[slice]:
        return [slice(start, min(start + ASK_ROWS, n)) for start in range(0, n, ASK_ROWS)]


@dataclass(frozen=True, eq=False)
class Explanation:
    """The selected features of every row, best first.

    selected : (rows, k) feature (or group) numbers, best first; -1 where a row had fewer to choose from, so
        use `mask` or `to_frame()` to look features up.
    mask : (rows, features), True where selected.
    scores : (rows, features or groups), larger is more important.
    target : (rows,) the output that was explained.
    expected : (rows,) the value that is explained: what the black box said about it where that is known, else what
        the energy expects it to say; verify() asks the black box.
    """

    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    target: NDArray[np.int64]
    expected: NDArray[Any]
    feature_names: list[str]
    output_names: list[str]
    source: Source
    trace: Trace | None = field(default=None, repr=False)
    """Computes `paths`, given by the explainer."""

    @classmethod
    def of(
        cls,
        ranking: NDArray[np.int64],
        sizes: NDArray[np.int64],
        scores: NDArray[np.float32],
        targets: NDArray[np.int64],
        values: NDArray[Any],
        source: Source,
        trace: Trace | None = None,
    ) -> Explanation:
        width = int(sizes.max())
        selected = np.where(np.arange(width) < sizes[:, None], ranking[:, :width], -1)
        expected = _as_labels(source.outputs, targets, values)
        names = source.groups.unit_names, list(source.outputs.names)
        return cls(selected, scores, targets, expected, *names, source, trace)

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def unit_mask(self) -> NDArray[np.bool_]:
        """(rows, groups) True where selected; equals `mask` when no groups were given."""
        sizes = np.full(len(self), self.selected.shape[1])
        return first_units(self.selected, sizes, self.source.groups.n_units)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(rows, features) True where selected."""
        return self.source.groups.to_features(self.unit_mask)

    @property
    def n_selected(self) -> NDArray[np.int64]:
        """How many features each row has selected."""
        return np.asarray((self.selected >= 0).sum(axis=1))

    def verify(self, *, removal: Any = None, n_draws: int = 10, random_state: int = 0) -> Verification:
        """Does the model say the same on these features alone? Asks the black box.

        The other features are removed as in training, or as `removal` says (means and other rows' values are
        those of the training data); where removal is random, n_draws times. Whole rows are asked about
        once, however often you verify, also where you said what the model predicts.
        """
        source = self.source
        rng = np.random.default_rng(random_state)
        how = source.removal
        if removal is not None:
            how = make_removal(removal, source.background.rows, source.input_format, rng)
        before = 0 if source.black_box is None else source.black_box.n_queries
        original, keep, rows = source.asked, self.unit_mask, np.arange(len(self))
        at = (rows, self.target)
        agree, moved = [], []
        for _ in range(n_draws if how.is_random else 1):
            reduced = source.ask_reduced(how, keep, rows, rng)
            agree.append(source.outputs.agree(original, reduced)[at])
            moved.append(source.outputs.difference(original, reduced)[at])
        after = 0 if source.black_box is None else source.black_box.n_queries
        return Verification(np.mean(agree, axis=0), np.mean(moved, axis=0), after - before)

    def paths(self, *, n_draws: int = 16, n_outputs: int = 8, random_state: int = 0) -> Paths:
        """How much of each selected feature's effect on the target is direct, and how much goes through other outputs.

        The energy answers, not the black box, which at most says what all its outputs are for the whole rows: once
        per row, and not where you gave `predicted`, nor if all rows were seen in fit, nor if it is not at hand (then
        what the energy expects is taken). The first call learns a small network for each target of the rows,
        which costs a few seconds per target: asking about many targets at once takes minutes. Where removal is random
        it is averaged over n_draws; at most n_outputs other outputs are looked at, those that matter most to the
        target. docs/paths.md says how it is defined, and what it cannot say.
        """
        if self.trace is None:
            raise InputError("paths: this explanation was not made by SOInter.explain(), which alone knows the paths.")
        return self.trace(
            self.selected,
            self.target,
            self.expected,
            n_draws=check_positive_int(n_draws, "n_draws"),
            n_outputs=check_positive_int(n_outputs, "n_outputs"),
            seed=check_positive_int(random_state, "random_state", minimum=0),
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per row and selected feature: sample, target, expected value, rank, feature, score."""
        pandas = require_extra("pandas", "pandas")
        sample, position = np.nonzero(self.selected >= 0)
        unit = self.selected[sample, position]
        frame: pd.DataFrame = pandas.DataFrame(
            {
                "sample": sample,
                "target": np.array(self.output_names, dtype=object)[self.target[sample]],
                "expected": self.expected[sample],
                "rank": position + 1,
                "feature": np.array(self.feature_names, dtype=object)[unit],
                "score": self.scores[sample, unit],
            }
        )
        return frame

    def summary(self, n: int = 10, *, expected: Any = None) -> dict[str, list[tuple[str, float]]]:
        """For every target explained, its n most often selected features and the share of rows that selected them.

        `expected` counts only rows where that value is explained: expected=1 gives the reasons for a tag, without
        those against it.
        """
        result: dict[str, list[tuple[str, float]]] = {}
        chosen = self.unit_mask
        counted = np.ones(len(self), dtype=bool) if expected is None else np.asarray(self.expected == expected)
        for target in np.unique(self.target[counted]):
            rows = counted & (self.target == target)
            share = chosen[rows].mean(axis=0)
            strength = np.abs(self.scores[rows]).mean(axis=0)
            order = np.lexsort((-strength, -share))[:n]
            result[self.output_names[target]] = [
                (self.feature_names[unit], float(share[unit])) for unit in order if share[unit] > 0
            ]
        return result

    def plot(self, row: int | None = None, *, n: int = 10, ax: Any = None) -> Any:
        """Bars: the features of one row with their scores, or, over all rows, how often each was selected."""
        from sointer.plot import bar

        return bar(self, row=row, n=n, ax=ax)

    def to_html(self, path: str | PathLike[str] | None = None, *, max_rows: int = 200) -> str:
        """A self-contained table of rows and their selected features, as HTML; written to `path` if given."""
        page = _page(self, max_rows)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        return _table(self, max_rows=20)

    def __repr__(self) -> str:
        targets = [self.output_names[t] for t in np.unique(self.target)[:3]]
        more = " ..." if len(np.unique(self.target)) > 3 else ""
        return f"Explanation({len(self)} rows, target {', '.join(targets)}{more}, k={self.selected.shape[1]})"


def _as_labels(outputs: Outputs, targets: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Class codes, or standardised numbers, of each row's target in the black box's own terms."""
    labels = np.empty(len(targets), dtype=object)
    for target in np.unique(targets):
        rows = targets == target
        if outputs.classes is not None:
            labels[rows] = np.asarray(outputs.classes[target], dtype=object)[values[rows]]
        elif outputs.center is not None and outputs.scale is not None:
            labels[rows] = outputs.center[target] + outputs.scale[target] * values[rows].astype(np.float64)
    return labels


def _chip(name: str, score: float, strongest: float) -> str:
    """A feature with its weight, the darker the stronger: green for the value that is explained, red against it."""
    colour = "26,127,75" if score >= 0 else "190,60,50"
    style = f"background:rgba({colour},{0.12 + 0.5 * abs(score) / strongest:.2f});border-radius:.4em;padding:.1em .4em"
    return f'<span class="chip" style="{style}">{html.escape(name)} <small>{score:.2g}</small></span>'


def _table(explanation: Explanation, max_rows: int) -> str:
    frame_rows = []
    for i in range(min(len(explanation), max_rows)):
        units = explanation.selected[i][explanation.selected[i] >= 0]
        strongest = float(np.abs(explanation.scores[i, units]).max(initial=0.0)) or 1.0
        words = " ".join(_chip(explanation.feature_names[u], float(explanation.scores[i, u]), strongest) for u in units)
        target = html.escape(explanation.output_names[explanation.target[i]])
        expected = html.escape(str(explanation.expected[i]))
        frame_rows.append(f"<tr><td>{i}</td><td>{target}</td><td>{expected}</td><td>{words}</td></tr>")
    left_out = len(explanation) - len(frame_rows)
    note = f"<p>{left_out} more rows not shown.</p>" if left_out > 0 else ""
    head = "<tr><th>row</th><th>target</th><th>value explained</th><th>because of (best first)</th></tr>"
    return f"<table>{head}{''.join(frame_rows)}</table>{note}"


def _page(explanation: Explanation, max_rows: int) -> str:
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
        "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;"
        "border-bottom:1px solid #8884;vertical-align:top}.chip{white-space:nowrap;display:inline-block;margin:.1em 0}"
        "small{opacity:.65}"
        "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Explanations</title>'
        f"<style>{style}</style></head><body><h1>Explanations</h1>{_table(explanation, max_rows)}</body></html>"
    )
