"""The recipe for texts: an energy of reduced texts, which reads the order of words only if the model does."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from sointer._support.torch_state import outside
from sointer.data.outputs import Outputs
from sointer.data.text_tables import TextTableFormat
from sointer.data.texts import Document, Documents, TextFormat
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import build_energy
from sointer.energy.space import OutputSpace
from sointer.energy.texts import TextFeatures, ranks
from sointer.errors import BlackBoxError, InputError
from sointer.interpreter.texts import TextInterpreter, units_there
from sointer.training.context import (
    FitContext,
    InputBuffer,
    QueryBatch,
    QueryPool,
    Trained,
    repeatability,
)
from sointer.training.energy import EnergyTrainer
from sointer.training.queries import UnmaskedRows, draw_pairs, query_first
from sointer.training.sparse_rows import FIRST_SELECTION, alternate, labels_of, submit_selected, train_energy

N_SHUFFLED, SHARE_SHUFFLED = 400, 0.05
"""Texts whose words are shuffled to see whether their order counts: so many, but no larger share of the queries."""

N_LOOKED_AT, MAX_LOOKED_AT = 256, 4096
"""Texts for each target, and in all, by which words are chosen whose order is read."""


def train_texts(context: FitContext) -> Trained:
    """See docs/concepts/how-it-works.md."""
    n_shuffled = min(N_SHUFFLED, int(SHARE_SHUFFLED * context.n_queries), context.rows.n_samples)
    context.n_extra = n_shuffled + 2
    check_empty_text(context)
    replies, whole_index, held_out, submit_rest = query_first(context)
    outputs, targets = context.describe(replies.raw)
    repeatability(context, outputs, whole_index.numpy(), replies)
    reads_order = order_counts(context, outputs, whole_index[:n_shuffled], replies)
    rest = submit_rest()
    pairs = QueryPool.of(outputs, replies, held_out)
    pairs.points = as_seen(context, pairs)
    whole = UnmaskedRows(context, whole_index, pairs.codes_of(slice(len(whole_index))))
    learned = whole.learned(held_out)
    interpreter = fresh_text_interpreter(context, outputs, reads_order)
    pairs.points.features = lambda documents: interpreter.features(documents).rows

    def learn(trainer: EnergyTrainer) -> None:
        trainer.run_until(FIRST_SELECTION, "pre-training")
        if reads_order:
            strength = strengths(context, interpreter, learned, torch.tensor(targets))
            interpreter.rank.copy_(torch.as_tensor(ranks(strength)))
        score = partial(score_texts, context, interpreter, learned)
        alternate(context, trainer, rest, partial(submit_selected, context, learned, torch.tensor(targets), score))

    return train_energy(context, outputs, targets, interpreter, whole, pairs, learn)


def as_seen(context: FitContext, pairs: QueryPool) -> InputBuffer:
    """The points, those held out as the model saw them: what it predicts depends on columns drawn from other rows.

    By these the energy is judged, which cannot know what was drawn.
    """
    form = context.rows.input_format
    if not isinstance(form, TextTableFormat) or form.table is None:
        return pairs.points
    held_out = pairs.held_out.numpy()
    return pairs.points.changed(lambda records: records.filled(held_out, int(form.piece_starts[-1])))


def check_empty_text(context: FitContext) -> None:
    """Refuse a model that takes texts, but not the empty one, before the budget is spent."""
    if getattr(context.rows.removal, "token", None) is not None:
        return  # a text whose words are all replaced is not empty
    row = np.zeros(1, dtype=np.int64)
    context.query(row)
    try:
        context.query(row, np.zeros((1, context.rows.groups.n_units), dtype=bool))
    except BlackBoxError as error:
        raise InputError(
            "the model fails on the empty text, which is what is left when all words are deleted: "
            f"{str(error).split('. ')[0]}. Give a function that returns the same outputs for every text, also for '': "
            "a score or 0 and 1 for each label, not only the labels that were found (for a label per token, use "
            "SequenceExplainer); or a token to put in place of a deleted word, such as removal='[MASK]'."
        ) from error


def order_counts(context: FitContext, outputs: Outputs, whole: Tensor, replies: QueryBatch) -> bool:
    """Whether the model predicts anything else when the words of a text are shuffled."""
    n, form = len(whole), context.rows.input_format
    assert isinstance(form, TextFormat)
    remaining = context.rows.model.remaining
    if n == 0 or (remaining is not None and remaining < n):
        return True
    X = form.replaced(context.rows.data[whole.numpy()], lambda document: shuffle(document, context.rng))
    with outside():
        shuffled, _ = context.rows.model.query(X)
    same = outputs.agree(replies.raw[:n], shuffled)
    context.history.record(stage="shuffled words", n_rows=n, same_outputs=float(same.mean()))
    return not same.all()


def shuffle(document: Document, rng: np.random.Generator) -> str:
    """A text with its pieces in another order; punctuation stays where it is."""
    spans, text = document.spans, document.text
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    between = [text[a:b] for a, b in zip(ends, starts, strict=True)]
    pieces = [text[slice(*spans[place])] for place in rng.permutation(len(spans))]
    return "".join(part for both in zip(between, [*pieces, ""], strict=True) for part in both)


def fresh_text_interpreter(context: FitContext, outputs: Outputs, reads_order: bool) -> TextInterpreter:
    """An untrained energy and the interpreter that reads it."""
    form, config = context.rows.input_format, context.configs.energy
    assert isinstance(form, TextFormat)
    rank = torch.full((form.n_words if reads_order else 0,), -1, dtype=torch.long)
    features = TextFeatures.of(form, rank)
    seed = int(context.rng.integers(2**31))
    energy = build_energy(features.n_columns, OutputSpace.of(outputs), config, structured=context.structured, seed=seed)
    for weight in energy.input_weights:  # columns of words that are not ordered yet say nothing
        weight.data[..., features.n_word_columns : features.n_text_columns] = 0.0
    return TextInterpreter(
        energy,
        Likelihood.of(config),
        torch.as_tensor(context.rows.groups.unit_of_column.astype(np.int64)),
        context.rows.groups.n_units,
        form,
        rank,
        n_path_steps=context.configs.interpreter.n_path_steps,
    )


@torch.no_grad()
def strengths(context: FitContext, interpreter: TextInterpreter, whole: UnmaskedRows, targets: Tensor) -> Tensor:
    """The largest share of any target's evidence that each word has in texts: (words,)."""
    features = interpreter.features
    total = torch.zeros(interpreter.energy.space.n_outputs, features.n_columns)
    n = min(MAX_LOOKED_AT, N_LOOKED_AT * len(targets))
    rows, chosen = draw_pairs(whole, targets, n, context.generator)
    labels = labels_of(interpreter, whole.codes[rows], chosen)
    for some, inputs, of_entry, *_ in interpreter.evidence(
        context.rows.data[whole.index[rows].numpy()], chosen, labels
    ):
        owner = chosen[some][torch.as_tensor(inputs.row)]
        total.index_put_((owner, inputs.rows.columns), of_entry.abs(), accumulate=True)
    share = (total / total.sum(dim=1, keepdim=True).clamp_min(1e-9)).amax(dim=0)
    return share[torch.as_tensor(features.of_words(np.arange(features.n_words)))]


def score_texts(
    context: FitContext, interpreter: TextInterpreter, whole: UnmaskedRows, rows: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """The evidence of the units of whole texts, and which of them are there."""
    documents: Documents = context.rows.data[whole.index[rows].numpy()]
    labels = labels_of(interpreter, whole.codes[rows], targets)
    there = units_there(documents, interpreter.unit_of_column, interpreter.n_units)
    return interpreter.whole(documents, targets, labels).evidence, there
