"""SequenceExplainer: which tokens decided the label of a token, and which of them through other labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sointer._support.progress import History
from sointer._support.torch_state import computing_on, device_of, one_thread, resolve_device
from sointer._support.validation import check_positive_int
from sointer.blackbox.adapters.tagger import query_tagger, read_tagged
from sointer.blackbox.box import BlackBox
from sointer.data.sequences import (
    PIECE,
    Splitter,
    TokenIndex,
    TokenOutputs,
    Tokens,
    Vocabulary,
    cut_pieces,
    read_sequences,
    resolve_positions,
)
from sointer.errors import BlackBoxError, InputError, PoorFitWarning, QueryBudgetExceeded, warn_caller
from sointer.explainers.data_checks import OtherLabels
from sointer.explainers.record_check import Probe
from sointer.explainers.records import Provenance
from sointer.explainers.sequence_base import SequenceFrame
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.explainers.sequence_paths import trace_paths
from sointer.interpreter.sequence import ChainReader, SelectionSize
from sointer.masking.conditional import Replacement, ReplacementFunction

if TYPE_CHECKING:
    from sointer.training.snapshots import Snapshots

MIN_QUERIES, DEFAULT_QUERIES = 200, 20_000
WINDOWS = (1, 2, 4)
LEVEL = 0.95
VALIDATION_SHARE = 0.1
N_FIRST = 32
"""Sequences that the model is tried on before anything else."""
POOR_SKILL = 0.3
CHUNK = 512
"""Tokens explained at a time: more take more memory, and no less time."""
MAX_SCORES = 2**27
"""Targets times the longest sequence, in one explanation."""
MAX_QUERY_BYTES = 2**31
"""Of what fit learns from."""


class Found(NamedTuple):
    """What was found for one target."""

    sample: int
    position: int
    code: int
    """The encoded value."""
    ranking: NDArray[np.int64]
    """Positions, best first."""
    size: int
    """How many of these are selected."""
    keeps: float
    scores: NDArray[np.float32]


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceExplainer(SequenceFrame):
    """Explain the output of one token of a sequence by the few tokens that decide it.

    Parameters
    ----------
    model : function, object with `predict`, or BlackBox
        Takes a list of token lists and returns one output per token: labels, numbers or class probabilities.
    k : int or "auto", default "auto"
        Number of tokens to select; "auto" selects as few as keep the output.
    level : float, default 0.95
        With k="auto", the share of replacements of all other tokens in which the output must stay.
    window : int or "auto", default "auto"
        Tokens on either side that affect a label directly; others act through labels. "auto": 1, 2 or 4,
        wider only if that predicts held-out labels clearly better.
    replacement : function (tokens, position, rng) -> token, optional
        What replaces a removed token; default: a token of the data at a similar position.
    splitter : function, optional
        Splits a string into tokens, if X contains strings.
    tolerance : float, default 0.1
        Numbers agree if they differ by at most this share of their standard deviation.
    query_budget : int, default 20,000
        Maximum number of sequences sent to the model during fit.
    batch_size : int, default 1024
        Maximum number of sequences sent in one call.
    random_state : int, optional
        Makes results reproducible.
    verbose : bool, optional
        Show progress; by default only on a terminal.
    device : str, default "cpu"
        Where networks are computed, as in `SOInter`.

    Examples
    --------
    >>> from sointer import SequenceExplainer
    >>> def tagger(batch):  # a number is a price where the token before it is "$"
    ...     return [["price" if i and s[i - 1] == "$" else "-" for i in range(len(s))] for s in batch]
    >>> X = [["pay", "$", "5", "now"], ["at", "5", "pm"], ["$", "7"], ["to", "7", "of", "us"]] * 20
    >>> explainer = SequenceExplainer(tagger, query_budget=1000, random_state=0).fit(X)
    >>> why = explainer.explain([["pay", "$", "7"]], target=2)
    >>> why.value[0], why.tokens(0)
    ('price', ['$'])
    """

    model: Any = field(kw_only=False)
    k: int | Literal["auto"] = "auto"
    level: float = LEVEL
    window: int | Literal["auto"] = "auto"
    replacement: ReplacementFunction | None = None
    splitter: Splitter | None = None
    tolerance: float = 0.1
    query_budget: int | None = None
    batch_size: int | None = None
    random_state: Any = None
    verbose: bool | None = None
    device: str = "cpu"

    # --- fitting -----------------------------------------------------------------------------------------

    def _fit(
        self, sequences: list[Tokens], black_box: BlackBox, rng: np.random.Generator, snapshots: Snapshots
    ) -> None:
        from sointer.training import sequence_queries  # saved explainers are used without what trains them
        from sointer.training import sequences as training

        device = resolve_device(self.device)
        replacement = Replacement.of(sequences, self.replacement)
        n_queries = self._n_queries(black_box)
        before = black_box.n_queries
        history = History(self.verbose, n_queried=lambda: black_box.n_queries - before, n_planned=n_queries)
        try:
            with one_thread(lasts=True), black_box.budget(n_queries):
                history.stage("querying the model", n_queries, unit="rows")
                first = sequences[:N_FIRST]
                first_outputs = query_tagger(black_box, first)  # a wrong model must come to light before time is spent
                n_left = n_queries - len(first)
                plan = sequence_queries.plan_queries(sequences, replacement, n_left, VALIDATION_SHARE, rng)
                sent, keep, is_held_out = plan
                returned = query_tagger(black_box, sent)
                outputs = TokenOutputs.infer(returned, self.tolerance)
                if outputs.n_labels < 2:
                    raise InputError(
                        f"the model gave {outputs.classes[0]!r:.40} to every token of {len(sent)} sequences, so "
                        "nothing decides it. Give data on which its output varies."
                    )
                self._check_memory(sent, outputs)
                index, vocabulary = TokenIndex(sequences), Vocabulary.of(sequences)
                with computing_on(device):
                    queries = sequence_queries.Queries.of(index, sent, keep, outputs, returned)
                    pseudo = None
                    if len(queries) >= training.MIN_PSEUDO_FROM:
                        pseudo = sequence_queries.PseudoQueries(sequences, replacement, index, vocabulary, outputs, rng)
                    known, held_out = (queries.take(torch.as_tensor(part)) for part in (~is_held_out, is_held_out))
                    rows = torch.as_tensor(vocabulary.rows(index.tokens))
                    steps: dict[str, Any] = {
                        "n_steps": training.n_steps_for(len(known)),
                        "seed": int(rng.integers(2**31)),
                        "history": history,
                        "snapshots": snapshots,
                    }
                    windows = WINDOWS if self.window == "auto" else (int(self.window),)
                    energy, simpler, quality = training.learn_chain(
                        vocabulary, rows, known, held_out, pseudo, windows=windows, **steps
                    )
        finally:
            history.close()
        self.replacement_ = replacement
        self.outputs_ = outputs
        self.vocabulary_ = vocabulary
        self.energy_, self.additive_ = energy, simpler
        self.window_ = energy.window
        self.history_: list[dict[str, Any]] = history.rows
        self.held_out_agreement_, self.held_out_skill_ = quality.agreement, quality.skill
        self.n_explain_queries_ = 0
        self.probe_ = Probe.of_sequences(first, first_outputs)
        if quality.skill < POOR_SKILL:
            warn_caller(
                f"the energy has learned little of this model: on held-out sequences it avoids only "
                f"{max(quality.skill, 0):.0%} of the errors of always predicting the most common label (below "
                f"{POOR_SKILL:.0%}), so explanations may be wrong. Check them with explanation.verify(); raise "
                "query_budget or give more data.",
                PoorFitWarning,
            )

    def _check_memory(self, sent: list[Tokens], outputs: TokenOutputs) -> None:
        longest = max(map(len, sent))
        n_bytes = len(sent) * longest * (16 if outputs.kind != "probability" else 8 + 4 * outputs.n_labels)
        if n_bytes > MAX_QUERY_BYTES:
            raise InputError(
                f"fit: {len(sent):,} queries about sequences of up to {longest:,} tokens take {n_bytes / 2**30:.1f} "
                f"GB, expected at most {MAX_QUERY_BYTES / 2**30:.0f}. Cut long sequences into parts, or lower "
                "query_budget."
            )

    def _check_parameters(self) -> None:
        if self.k != "auto":
            check_positive_int(self.k, "k")
        if self.window != "auto":
            check_positive_int(self.window, "window", minimum=0)
        if not isinstance(self.level, (int, float)) or not 0 < self.level < 1:
            raise InputError(f"level must be a share between 0 and 1, such as {LEVEL}, got {self.level!r}.")
        if self.splitter is not None and not callable(self.splitter):
            raise InputError(f"splitter must be a function from a string to its tokens, got {self.splitter!r:.60}.")
        if self.query_budget is not None:
            check_positive_int(self.query_budget, "query_budget", minimum=MIN_QUERIES)

    def _n_queries(self, black_box: BlackBox) -> int:
        planned = DEFAULT_QUERIES if self.query_budget is None else self.query_budget
        remaining = black_box.remaining
        if remaining is not None and remaining < MIN_QUERIES:
            raise QueryBudgetExceeded(
                f"fit needs at least {MIN_QUERIES} queries, but the model's own budget allows {remaining} more. Raise "
                "its query_budget."
            )
        return planned if remaining is None else min(planned, remaining)

    # --- explaining --------------------------------------------------------------------------------------

    def explain(
        self,
        X: Any,
        target: Any = "all",
        *,
        k: int | Literal["auto"] | None = None,
        predicted: Any = None,
        query: bool = True,
    ) -> SequenceExplanation:
        """Find the tokens that decide the model's prediction of the targets of every sequence.

        The model is queried once per distinct sequence.

        Parameters
        ----------
        X : list of token lists
            Or of strings, with a splitter.
        target : int, tuple, list or "all", default "all"
            A position (negative: counted from the end), several positions, or a list with one of these per sequence.
        k : int or "auto", optional
            Number of tokens; default: the constructor's.
        predicted : list, optional
            The model's outputs for X, one list per sequence; the model is then not queried.
        query : bool, default True
            With False, expected values are explained and the model is not queried.

        Returns
        -------
        SequenceExplanation

        Raises
        ------
        InputError
            If X, the targets and the predictions do not fit together.
        """
        check_is_fitted(self, "energy_")
        sequences = read_sequences(X, self.splitter, "explain")
        positions = resolve_positions(target, sequences)
        size = self.k if k is None else k
        if size != "auto":
            check_positive_int(size, "k")
        if not isinstance(query, bool):
            raise InputError(f"query must be True or False, got {query!r}. To give predictions, use predicted=.")
        black_box, sent_before = self.black_box_, self.n_explain_queries_
        outputs, source = self._predictions(sequences, predicted, query)
        n_queries = self.n_explain_queries_ - sent_before
        labels = [[] if outputs is None else self.outputs_.values(outputs[i]) for i in range(len(sequences))]
        found = sorted(self._in_pieces(sequences, positions, labels, size), key=lambda one: (one.sample, one.position))
        selected = np.full((len(found), max(one.size for one in found)), -1, dtype=np.int64)
        scores = np.full((len(found), max(len(one.scores) for one in found)), np.nan, dtype=np.float32)
        value = np.empty(len(found), dtype=object)
        for i, one in enumerate(found):
            selected[i, : one.size], scores[i, : len(one.scores)] = one.ranking[: one.size], one.scores
            value[i] = labels[one.sample][one.position]
        return SequenceExplanation(
            sequences,
            np.array([one.sample for one in found]),
            np.array([one.position for one in found]),
            selected,
            scores,
            value,
            np.array([one.keeps for one in found], dtype=np.float32),
            labels,
            source,
            np.array([one.code for one in found]),
            self.outputs_,
            self.level if size == "auto" else None,
            verifier=None if black_box is None else (partial(query_tagger, black_box), self.replacement_),
            tracer=partial(trace_paths, self.additive_ or self.energy_, self.vocabulary_, self.replacement_),
            provenance=Provenance(self, size, 0, n_queries),
        )

    def _predictions(
        self, sequences: list[Tokens], predicted: Any, query: bool
    ) -> tuple[list[list[Any]] | None, Literal["model", "given", "expected"]]:
        """What the model predicts for all tokens, and where that comes from."""
        if predicted is not None:
            try:
                given = read_tagged(predicted, sequences)
            except BlackBoxError as error:
                raise InputError(
                    f"explain: predicted must be what the model returns for X, one list per sequence with one output "
                    f"per token. {error}"
                ) from error
            self.outputs_.check(given)
            return given, "given"
        if not query or self.black_box_ is None:
            return None, "expected"
        different = list(dict.fromkeys(map(tuple, sequences)))
        before = self.black_box_.n_queries
        try:
            returned = query_tagger(self.black_box_, [list(tokens) for tokens in different])
        finally:
            self.n_explain_queries_ += self.black_box_.n_queries - before
        self.outputs_.check(returned)
        known = dict(zip(different, returned, strict=True))
        return [known[tuple(tokens)] for tokens in sequences], "model"

    def _in_pieces(
        self,
        sequences: list[Tokens],
        positions: list[NDArray[np.int64]],
        labels: list[list[Any]],
        size: int | Literal["auto"],
    ) -> Iterator[Found]:
        """As `_selected`, but of long sequences the parts around the targets."""
        longest, n_targets = max(map(len, sequences)), sum(map(len, positions))
        if longest * n_targets > MAX_SCORES:
            raise InputError(
                f"explain: scores of {n_targets:,} targets in sequences of up to {longest:,} tokens do not fit into "
                "memory; explain fewer targets or sequences at a time."
            )
        for i, tokens in enumerate(sequences):
            if not labels[i] and len(tokens) > PIECE:
                index = TokenIndex()
                ids = np.array([index.ids(tokens)], dtype=np.int64)
                codes = ChainReader(self.energy_, self.vocabulary_.rows(index.tokens)).expected(ids)[0]
                labels[i] = [self.outputs_.classes[code] for code in codes]
        pieces = cut_pieces(sequences, positions)
        own = [labels[piece.sample][piece.start : piece.start + len(piece.tokens)] for piece in pieces]
        of_pieces = [piece.positions for piece in pieces]
        for one in self._selected([piece.tokens for piece in pieces], of_pieces, own, size):
            piece, start = pieces[one.sample], pieces[one.sample].start
            labels[piece.sample] = labels[piece.sample] or own[one.sample]
            scores = np.zeros(len(sequences[piece.sample]), dtype=one.scores.dtype)
            scores[start : start + len(one.scores)] = one.scores
            ranking, at = start + one.ranking, start + one.position
            yield one._replace(sample=piece.sample, position=at, ranking=ranking, scores=scores)

    def _selected(
        self,
        sequences: list[Tokens],
        positions: list[NDArray[np.int64]],
        labels: list[list[Any]],
        size: int | Literal["auto"],
    ) -> Iterator[Found]:
        """What is found for every target. Where `labels` of a sequence are not known, expected ones are put there."""
        others = OtherLabels(self.outputs_, 1 - self.held_out_agreement_)
        by_length: dict[int, list[int]] = {}
        for number, tokens in enumerate(sequences):
            by_length.setdefault(len(tokens), []).append(number)
        with one_thread(device_of(self.energy_)):
            for n, numbers in by_length.items():
                step = max(1, CHUNK // n)
                for start in range(0, len(numbers), step):
                    chunk = numbers[start : start + step]
                    index = TokenIndex()
                    ids = np.array([index.ids(sequences[i]) for i in chunk], dtype=np.int64)
                    reader = ChainReader(self.energy_, self.vocabulary_.rows(index.tokens))
                    codes = reader.expected(ids)
                    for row, i in enumerate(chunk):
                        labels[i] = labels[i] or [self.outputs_.classes[code] for code in codes[row]]
                    given = np.array([self.outputs_.codes(labels[i]) for i in chunk])
                    wanted = np.zeros((len(chunk), n), dtype=bool)
                    for row, i in enumerate(chunk):
                        wanted[row, positions[i]] = True
                    others.add([sequences[i] for i in chunk], [labels[i] for i in chunk], given, codes, wanted)
                    codes = np.where(given >= 0, given, codes)
                    found = reader.select(ids, codes, SelectionSize(self.level, None if size == "auto" else size))
                    keeps = found.probability
                    if self.outputs_.kind == "probability":  # of a class that is never certain, what of that stays
                        keeps = keeps / keeps.max(axis=1, keepdims=True)
                    for flat in np.flatnonzero(wanted.ravel()).tolist():
                        row, position = divmod(flat, n)
                        ranking, n_selected, scores = found.ranking[flat], int(found.sizes[flat]), found.scores[flat]
                        kept = float(keeps[flat, n_selected])
                        code = int(codes[row, position])
                        yield Found(chunk[row], position, code, ranking, n_selected, kept, scores)
        others.warn()
