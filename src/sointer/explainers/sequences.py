"""SequenceExplainer: which tokens decided the label of a token, and which of them through other labels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

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

    def __init__(
        self,
        model: Any,
        *,
        k: int | Literal["auto"] = "auto",
        level: float = LEVEL,
        window: int | Literal["auto"] = "auto",
        replacement: ReplacementFunction | None = None,
        splitter: Splitter | None = None,
        tolerance: float = 0.1,
        query_budget: int | None = None,
        batch_size: int | None = None,
        random_state: Any = None,
        verbose: bool | None = None,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.k = k
        self.level = level
        self.window = window
        self.replacement = replacement
        self.splitter = splitter
        self.tolerance = tolerance
        self.query_budget = query_budget
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

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
                sent, keep, chosen = sequence_queries.plan_queries(sequences, replacement, n_left, rng)
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
                    known, held_out = sequence_queries.split(queries, chosen, VALIDATION_SHARE, rng)
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
        sent_before = self.n_explain_queries_
        outputs, source = self._predictions(sequences, predicted, query)
        n_queries = self.n_explain_queries_ - sent_before
        labels = [[] if outputs is None else self.outputs_.values(outputs[i]) for i in range(len(sequences))]
        found = list(self._in_pieces(sequences, positions, labels, size))
        order = np.argsort([sample * 2**32 + position for sample, position, *_ in found], kind="stable")
        return SequenceExplanation.of(
            [found[i] for i in order],
            sequences,
            labels,
            self.outputs_,
            source,
            self.level if size == "auto" else None,
            verifier=self._verifier(),
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
    ) -> Iterator[tuple[Any, ...]]:
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
        for number, at, code, ranking, n, p, scores in self._selected(
            [piece.tokens for piece in pieces], of_pieces, own, size
        ):
            piece, start = pieces[number], pieces[number].start
            labels[piece.sample] = labels[piece.sample] or own[number]
            whole = np.zeros(len(sequences[piece.sample]), dtype=scores.dtype)
            whole[start : start + len(scores)] = scores
            yield piece.sample, start + at, code, start + ranking, n, p, whole

    def _selected(
        self,
        sequences: list[Tokens],
        positions: list[NDArray[np.int64]],
        labels: list[list[Any]],
        size: int | Literal["auto"],
    ) -> Iterator[tuple[Any, ...]]:
        """For every target: its sequence and position, its code, the ranking, how many are selected, p and scores.

        Where `labels` of a sequence are not known, expected ones are put there.
        """
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
                        yield (
                            chunk[row],
                            position,
                            int(codes[row, position]),
                            found.ranking[flat],
                            int(found.sizes[flat]),
                            float(keeps[flat, found.sizes[flat]]),
                            found.scores[flat],
                        )
        others.warn()

    def _verifier(self) -> Any:
        black_box, replacement = self.black_box_, self.replacement_
        return None if black_box is None else (partial(query_tagger, black_box), replacement)
