"""Outputs as records, as text-classification pipelines return them."""

from __future__ import annotations

import numpy as np
import pytest

from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.replies import read_outputs
from sointer.errors import BlackBoxError, InputError, SointerWarning


def scores(text: str) -> dict[str, float]:
    return {"joy": min(1.0, text.count("!") / 4), "anger": float("grr" in text), "calm": 0.5}


class TextClassificationPipeline:
    """What of the pipeline of transformers is used here, with a model that cannot be wrong."""

    __module__ = "transformers.pipelines.text_classification"

    class Tokenizer:
        model_max_length = 8

        def __call__(self, text):
            return {"input_ids": text.split()}

    tokenizer = Tokenizer()

    def __call__(self, texts, top_k=1, truncation=False):
        found = []
        for text in texts:
            if len(text.split()) > 8 and not truncation:
                raise RuntimeError("sequence too long")
            own = scores(" ".join(text.split()[:8]))
            best = sorted(({"label": name, "score": p} for name, p in own.items()), key=lambda one: -one["score"])
            found.append(best if top_k is None else best[:top_k] if top_k != 1 else best[0])
        return found

    predict = __call__


TEXTS = ["hm", "oh!!!", "grr!"]
TABLE = [[0.0, 0.5, 0.0], [0.0, 0.5, 0.75], [1.0, 0.5, 0.25]]


def test_dictionaries_and_lists_of_scored_labels_are_tables_with_names() -> None:
    for outputs in ([scores(text) for text in TEXTS], TextClassificationPipeline()(TEXTS, top_k=None)):
        table, _, names = read_outputs(outputs, 3, None)
        assert names == ["anger", "calm", "joy"]
        np.testing.assert_allclose(table, TABLE)


def test_the_best_label_alone_is_a_label() -> None:
    table, _, names = read_outputs(TextClassificationPipeline()(TEXTS), 3, None)
    assert names == ["label"]
    assert table.ravel().tolist() == ["calm", "joy", "anger"]


def test_some_labels_only_are_refused() -> None:
    with pytest.raises(BlackBoxError, match="top_k=None"):
        read_outputs(TextClassificationPipeline()(TEXTS, top_k=2), 3, None)


def test_a_pipeline_is_asked_for_all_labels_and_long_texts_are_named_once() -> None:
    box = as_black_box(TextClassificationPipeline())
    np.testing.assert_allclose(box(TEXTS), TABLE)
    assert box.output_names == ["anger", "calm", "joy"]
    assert box.declared_kind == "probability"
    with pytest.warns(SointerWarning, match="1 of 2 texts are longer than the 8 tokens"):
        assert box(["a b c d e f g h i grr", "grr"])[:, 0].tolist() == [0.0, 1.0]


def test_a_cache_knows_strings_whatever_comes_with_them() -> None:
    box = as_black_box(lambda texts: [[len(text)] for text in texts], cache=True)
    box(["a", "bb"])
    assert box(["a", "a much longer one"]).ravel().tolist() == [1, 17]
    assert box.n_queries == 3


def test_masks_in_dictionaries_are_refused_with_what_to_return() -> None:
    box = as_black_box(lambda images: [{"mask": image[0] > 0.5} for image in images])
    message = r"returned 36 numbers under 1 names, such as 'mask'.*masks as one array \(n, height, width\)"
    with pytest.raises(InputError, match=message):
        box(np.zeros((3, 1, 6, 6)))
