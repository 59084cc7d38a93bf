"""The HTML report on sequences: tagged tokens, and what decided any label. One file that needs nothing else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer._support.validation import check_unique_names
from sointer.data.sequences import PIECE, read_sequences
from sointer.errors import InputError
from sointer.verification import Verification
from sointer.viz.plots.canvas import short
from sointer.viz.report.page import render_template
from sointer.viz.report.samples import N_DRAWS, ReportOptions, can_query, verification_budget

if TYPE_CHECKING:
    from sointer.explainers.sequence_explanation import SequenceExplanation
    from sointer.explainers.sequence_paths import SequencePaths
    from sointer.explainers.sequences import SequenceExplainer

MAX_TOKENS = 5000
"""On one page, with a few hundred bytes for each."""
N_COMMON = 6
DIGITS = 4


def sequence_entries(
    explanation: SequenceExplanation, paths: SequencePaths | None, verification: Verification | None
) -> list[dict[str, Any]]:
    """One entry for each sequence, of plain values: its tokens, their labels, and what decided each target.

    `verification` may be about the first targets only.
    """
    entries: list[dict[str, Any]] = [
        {
            "sample": sample,
            "tokens": list(tokens),
            "labels": list(labels),
            "value_source": explanation.value_source,
            "targets": [],
        }
        for sample, (tokens, labels) in enumerate(zip(explanation.sequences, explanation.labels, strict=True))
    ]
    verdict = None if verification is None else verification.verdict
    for i, found in enumerate(explanation.to_dict()):
        target = {name: found[name] for name in ("position", "value")} | {"keeps": round(found["keeps"], DIGITS)}
        if verification is not None and verdict is not None and i < len(verdict):
            target |= {"agreement": float(verification.agreement[i]), "verdict": str(verdict[i])}
        selected = target["selected"] = []
        for place, one in enumerate(found["selected"]):
            entry = {name: one[name] for name in ("at", "label")} | {"token": one["selected"]}
            entry["score"] = round(one["score"], DIGITS)
            if paths is not None:
                entry["effect"] = round(float(paths.total[i, place]), DIGITS)
                entry |= {name: round(float(getattr(paths, name)[i, place]), DIGITS) for name in ("direct", "mediated")}
                at = paths.through(i, place)
                entry["through"] = None if at is None else {"at": at, "label": entries[found["sample"]]["labels"][at]}
            selected.append(entry)
        entries[found["sample"]]["targets"].append(target)
    return entries


def sequence_page(explainer: SequenceExplainer, X: Any, options: ReportOptions) -> str:
    """Explain every label of sequences; the page that shows it."""
    sequences = read_sequences(X, explainer.splitter, "report")
    names = [f"sequence {i}" for i in range(len(sequences))]
    if options.sample_names is not None:
        names = check_unique_names(options.sample_names, len(sequences), "sample_names")
    ends = np.cumsum([len(tokens) for tokens in sequences])
    if ends[0] > MAX_TOKENS:
        raise InputError(
            f"report: the first sequence has {ends[0]:,} tokens, expected at most {MAX_TOKENS:,} on a page; cut it."
        )
    n_shown = min(options.n_samples, int((ends <= MAX_TOKENS).sum()))
    shown = sequences[:n_shown]
    query = options.predicted is not None or can_query(explainer, n_shown)
    given = None if options.predicted is None else list(options.predicted)[:n_shown]
    explanation = explainer.explain(shown, k=options.k, predicted=given, query=query)
    wanted = len(explanation) * N_DRAWS
    n_checked = verification_budget(explainer, options.verify, wanted) // N_DRAWS if query else 0
    verification = explanation.first(n_checked).verify(n_draws=N_DRAWS) if n_checked else None
    entries = sequence_entries(explanation, explanation.paths() if options.paths else None, verification)
    for entry, name in zip(entries, names[:n_shown], strict=True):
        entry["name"] = name
    summary = [
        (short(value), ", ".join(f"{token} ({share:.0%})" for token, share in common) or "no token")
        for value, common in explanation.summary(N_COMMON).items()
    ]
    return render_template(
        "sequences.html",
        title=options.title or "What decides this label?",
        notes=_notes(explainer, explanation, verification, len(sequences), bool(options.paths)),
        summary=summary[:MAX_TOKENS],
        data=entries,
    )


def _notes(
    explainer: SequenceExplainer,
    explanation: SequenceExplanation,
    verification: Verification | None,
    n_given: int,
    paths: bool,
) -> list[str]:
    """How far the page can be trusted, and what is not on it."""
    notes = [
        f"The explainer predicts {explainer.held_out_agreement_:.1%} of held-out labels correctly; it learned from "
        f"{explainer.n_queries_ + explainer.n_queries_replayed_:,} queries."
    ]
    if verification is None:
        notes.append("The model was not queried to confirm what is shown.")
    else:
        n, verdicts = len(verification.agreement), verification.verdict.tolist()
        of_all = "" if n == len(explanation) else f" (of {len(explanation):,} labels in all)"
        notes.append(
            f"Of {n:,} labels checked{of_all}, {verdicts.count('confirmed'):,} are confirmed: with all other tokens "
            f"replaced, {N_DRAWS} times, the model predicts the same; {verdicts.count('unsure'):,} are unsure, "
            f"{verdicts.count('refuted'):,} refuted."
        )
        notes += _rare(explanation.value[:n].tolist(), verdicts, explanation.outputs.kind)
    if explanation.value_source == "expected":
        notes.append("Labels are what the explainer expects of the model, which was not queried.")
    if not paths:
        notes.append("Whether tokens act directly or through other labels is not shown, for paths=False was given.")
    elif max(map(len, explanation.sequences)) > PIECE:
        notes.append(f"In sequences of more than {PIECE} tokens, labels are explained by the tokens around them.")
    if len(explanation.sequences) < n_given:
        notes.append(f"The first {len(explanation.sequences):,} of {n_given:,} sequences are shown.")
    return notes


def _rare(values: list[Any], verdicts: list[str], kind: str) -> list[str]:
    """How many labels are confirmed apart from the most common one, which most often needs no reason."""
    (common, n_common), *others = Counter(values).most_common()
    if kind == "number" or not others:
        return []
    rare = Counter(verdict for value, verdict in zip(values, verdicts, strict=True) if value != common)
    confirmed = {value for value, verdict in zip(values, verdicts, strict=True) if verdict == "confirmed"}
    poor = [short(value) for value, _ in others if value not in confirmed]
    none = f" None is confirmed that is {', '.join(poor[:N_COMMON])}." if poor else ""
    return [
        f"Of the {len(values) - n_common:,} that are not {short(common)}, {rare['confirmed']:,} are confirmed, "
        f"{rare['unsure']:,} unsure, {rare['refuted']:,} refuted.{none}"
    ]
