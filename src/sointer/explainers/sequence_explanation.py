"""SequenceExplanation: the tokens behind the outputs of tokens, and whether the model predicts the same from these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sointer._support.validation import check_positive_int
from sointer.data.sequences import TokenOutputs, Tokens
from sointer.data.targets import ValueSource
from sointer.errors import InputError, require_extra
from sointer.explainers.records import Provenance, make_sequence_records
from sointer.explainers.sequence_paths import SequencePaths
from sointer.masking.conditional import Replacement
from sointer.verification import LEVEL, Verification

if TYPE_CHECKING:
    import pandas as pd

N_SHOWN = 20
MIN_KEPT = 0.5
"""Where fewer of the values are expected to stay with the selected tokens, something is needed that was not found."""
CHUNK, MAX_TOKENS_SENT = 4096, 2**20
"""Sequences, and tokens, that are masked at a time."""
Query = Callable[[Sequence[Tokens]], list[list[Any]]]


class TracesPaths(Protocol):
    """Computes the paths of an explanation; handed to it by the explainer."""

    def __call__(self, explanation: SequenceExplanation, *, n_draws: int, seed: int) -> SequencePaths:
        """The paths of this explanation's selected tokens."""


@dataclass(frozen=True, eq=False)
class SequenceExplanation:
    """The tokens that decide the output of a token, best first; one entry per target.

    Attributes
    ----------
    sequences
        The token lists that were explained.
    sample, position
        (targets,) index of the sequence, and of the target in it.
    selected
        (targets, k) positions of the selected tokens, best first; -1 where there are fewer.
    scores
        (targets, longest) how much the output depends on the token at each position; NaN beyond the end.
    value
        (targets,) the value explained: a label, a number, or the most probable class.
    keeps
        (targets,) how often the value is expected to stay if all others are replaced; of a probability, how much of it.
    labels
        The values of all tokens of every sequence, as predicted, given or expected.
    value_source
        "model" (queried), "given" (passed as predicted=) or "expected" (neither).
    outputs : object
        How values are compared.
    """

    sequences: list[Tokens]
    sample: NDArray[np.int64]
    position: NDArray[np.int64]
    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    value: NDArray[Any]
    keeps: NDArray[np.float32]
    labels: list[list[Any]]
    value_source: ValueSource
    codes: NDArray[np.int64] = field(repr=False)
    """(targets,) the encoded value."""
    outputs: TokenOutputs = field(repr=False)
    level: float | None = None
    """The share of replacements in which the value should stay, if this determined the number of tokens."""
    verifier: tuple[Query, Replacement] | None = field(default=None, repr=False)
    """The model and what replaces tokens; checks the explanation."""
    tracer: TracesPaths | None = field(default=None, repr=False)
    """Computes `paths`, given by the explainer."""
    provenance: Provenance | None = field(default=None, repr=False)
    """The explainer and its settings; makes records."""

    def __len__(self) -> int:
        return len(self.sample)

    def first(self, n: int) -> SequenceExplanation:
        """Keep the first n targets."""
        per_target = ("sample", "position", "selected", "scores", "value", "keeps", "codes")
        return replace(self, **{name: getattr(self, name)[:n] for name in per_target})

    def tokens(self, i: int) -> Tokens:
        """Return the selected tokens of a target, best first.

        Parameters
        ----------
        i : int

        Returns
        -------
        list of str
        """
        return [self.sequences[self.sample[i]][p] for p in self.selected[i] if p >= 0]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(targets, longest) True where selected."""
        mask = np.zeros((len(self), self.scores.shape[1] + 1), dtype=bool)
        mask[np.arange(len(self))[:, None], self.selected] = True  # -1 is the last column, which is left out
        return mask[:, :-1]

    @property
    def needed(self) -> NDArray[np.bool_]:
        """(targets, longest) True for selected tokens without which the value is less likely to stay."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.mask & (self.scores > 0))

    @property
    def n_selected(self) -> NDArray[np.int64]:
        """How many tokens each target has selected."""
        return np.asarray((self.selected >= 0).sum(axis=1))

    def verify(self, *, n_draws: int = 10, level: float = LEVEL, random_state: int = 0) -> Verification:
        """Check that the model still predicts `value` with all tokens replaced except the selected ones.

        Parameters
        ----------
        n_draws : int, default 10
            Replacements, drawn as in fit.
        level : float, default 0.7
            Confirmed are targets whose value, with 95 % confidence, stays in at least this share of all replacements.
        random_state : int, default 0

        Returns
        -------
        Verification

        Raises
        ------
        InputError
            If an argument is wrong, or the explanation has no model.
        """
        check_positive_int(n_draws, "n_draws")
        if not 0 < level < 1:
            raise InputError(f"level must be a share of draws between 0 and 1, such as {LEVEL}, got {level!r}.")
        agreement, difference, n_queries = self.repeated(self.mask, n_draws, random_state)
        removal = None if self.verifier is None else self.verifier[1].name
        return Verification(
            agreement, difference, n_queries, n_draws, float(level), self.value_source, removal, random_state
        )

    def repeated(
        self, keep: NDArray[np.bool_], n_draws: int, random_state: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        """With the tokens of `keep` (targets, longest) alone: how often values stay, how far they move, and queries."""
        if self.verifier is None:
            raise InputError(
                "verify: this explanation has no model to query; load the explainer with sointer.load(path, "
                "black_box=model), then explain again."
            )
        query, replacement = self.verifier
        rng = np.random.default_rng(random_state)
        n_queries, agree, moved = 0, np.zeros(len(self)), np.zeros(len(self))
        step = max(1, min(CHUNK, MAX_TOKENS_SENT // keep.shape[1]))
        for _ in range(n_draws):
            for start in range(0, len(self), step):
                rows = np.arange(start, min(start + step, len(self)))
                sequences = [self.sequences[self.sample[i]] for i in rows]
                kept = [keep[i, : len(tokens)] for i, tokens in zip(rows, sequences, strict=True)]
                returned = query(replacement.draw(sequences, kept, rng))
                n_queries += len(rows)
                for i, outputs in zip(rows, returned, strict=True):
                    got = self.outputs.values([outputs[self.position[i]]])[0]
                    agree[i] += self.outputs.agree(self.value[i], got)
                    moved[i] += self.outputs.difference(self.value[i], got)
        return agree / n_draws, moved / n_draws, n_queries

    def paths(self, *, n_draws: int = 16, random_state: int = 0) -> SequencePaths:
        """Split the effect of each selected token into a direct part and a part through the labels of other tokens.

        The model is not queried. See docs/how-to/sequences.md.

        Parameters
        ----------
        n_draws : int, default 16
        random_state : int, default 0

        Returns
        -------
        SequencePaths

        Raises
        ------
        InputError
            If an argument is wrong, or no explainer made the explanation.
        """
        check_positive_int(n_draws, "n_draws")
        if self.tracer is None:
            raise InputError("paths: this explanation was not made by an explainer, which alone knows the paths.")
        return self.tracer(self, n_draws=n_draws, seed=check_positive_int(random_state, "random_state", minimum=0))

    def record(
        self,
        verification: Verification | None = None,
        *,
        created: datetime | str | None = None,
        ids: Sequence[Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return one JSON-ready dictionary per target, with everything needed to check the explanation later.

        Fields and JSON schema are those of tables: docs/how-to/records.md. See `sointer.verify_record`.

        Parameters
        ----------
        verification : Verification, optional
            What `verify()` returned for this explanation; adds its verdicts.
        created : datetime or str, default now
        ids : sequence, optional
            A name for each sequence.

        Returns
        -------
        list of dict
        """
        return make_sequence_records(self, verification, created=created, ids=ids)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line per target and selected token.

        Returns
        -------
        DataFrame
        """
        pandas = require_extra("pandas", "pandas")
        lines = self.to_dict()
        frame: pd.DataFrame = pandas.DataFrame(
            [
                {**{name: one[name] for name in ("sample", "position", "token", "value", "keeps")}, **chosen}
                for one in lines
                for chosen in one["selected"]
            ],
            columns=["sample", "position", "token", "value", "keeps", "rank", "at", "selected", "label", "score"],
        )
        frame["value_source"] = self.value_source
        return frame

    def to_dict(self) -> list[dict[str, Any]]:
        """Return one dictionary per target, of plain values that JSON can hold.

        Returns
        -------
        list of dict
        """
        result = []
        for i in range(len(self)):
            s, p = int(self.sample[i]), int(self.position[i])
            chosen = [
                {
                    "rank": rank,
                    "at": int(at),
                    "selected": self.sequences[s][at],
                    "label": self.labels[s][at],
                    "score": float(self.scores[i, at]),
                }
                for rank, at in enumerate(self.selected[i], 1)
                if at >= 0
            ]
            result.append(
                {
                    "sample": s,
                    "position": p,
                    "token": self.sequences[s][p],
                    "value": self.value[i],
                    "value_source": self.value_source,
                    "keeps": float(self.keeps[i]),
                    "selected": chosen,
                }
            )
        return result

    def summary(self, n: int = 10) -> dict[Any, list[tuple[str, float]]]:
        """Return, for every value explained, the n tokens that are selected most often.

        Parameters
        ----------
        n : int, default 10

        Returns
        -------
        dict of value to list of (str, float)
            Tokens, and the share of targets for which they are selected.
        """
        result: dict[Any, list[tuple[str, float]]] = {}
        for value in sorted(set(self.value), key=str):
            rows = [i for i in range(len(self)) if self.value[i] == value]
            counts = Counter(token for i in rows for token in set(self.tokens(i)))
            result[value] = [(token, count / len(rows)) for token, count in counts.most_common(n)]
        return result

    def plot(self, row: int = 0, *, ax: Any = None) -> Any:
        """Draw the sequence of target number `row`, every token with its label, the selected ones marked.

        Parameters
        ----------
        row : int, default 0
        ax : Axes, optional

        Returns
        -------
        Axes
        """
        from sointer.viz.plots.words import tokens

        return tokens(self, row, ax=ax)

    def to_html(self, path: str | PathLike[str] | None = None, *, max_rows: int = 200) -> str:
        """Return a self-contained HTML table of targets and the tokens selected for them.

        Parameters
        ----------
        path : path, optional
            A file to write it to.
        max_rows : int, default 200

        Returns
        -------
        str
        """
        from sointer.viz.plots.notebook import html_sequences, page_of

        return page_of(html_sequences(self, max_rows), path)

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_sequences

        return html_sequences(self, N_SHOWN)

    def __str__(self) -> str:
        lines = []
        for i in range(min(len(self), N_SHOWN)):
            s, p = self.sample[i], self.position[i]
            chosen = set(self.selected[i].tolist())
            marked = [f"[{t}]" if j in chosen else t for j, t in enumerate(self.sequences[s])]
            found = self.keeps[i] >= MIN_KEPT
            why = "because of" if found else f"for reasons not found (the marked tokens keep it in {self.keeps[i]:.0%})"
            if not self.n_selected[i]:
                why = "whatever the tokens are" if found else "for unknown reasons"
            lines.append(f"{self.sequences[s][p]} (token {p}) is {self.value[i]} {why}: {' '.join(marked)}")
        if len(self) > N_SHOWN:
            lines.append(f"... and {len(self) - N_SHOWN} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        expected = ", of expected values" if self.value_source == "expected" else ""
        return f"SequenceExplanation({len(self)} targets in {len(self.sequences)} sequences{expected})"
