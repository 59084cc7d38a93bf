"""A real text-classification pipeline of transformers: a tiny network with random weights, made here."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from quick import TEXTS, WORDS, quick_fit
from sointer.blackbox.adapters import as_black_box, is_text_classification
from sointer.errors import SointerWarning

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.slow  # what is recognised is tested without it in test_output_records.py
LIMIT = 16


@pytest.fixture(scope="module")
def pipeline() -> Any:
    """Multi-label, of three labels, with a limit of 16 tokens, the one that begins every text among them."""
    words = ["[PAD]", "[UNK]", "[CLS]", *WORDS]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 2)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=LIMIT
    )
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_labels=3, problem_type="multi_label_classification", max_position_embeddings=32,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(20)
    return transformers.pipeline("text-classification", model=model, tokenizer=fast, device="cpu")


def test_the_scores_of_all_labels_are_those_of_the_pipeline(pipeline: Any) -> None:
    assert is_text_classification(pipeline)
    texts = ["rain sun", "snow", ""]
    own = pipeline(texts, top_k=None)
    assert [len(row) for row in own] == [3, 3, 3]  # lists of {"label", "score"}, best first
    box = as_black_box(pipeline)
    table = box(np.array(texts, dtype=object))
    names = box.output_names
    assert names is not None
    for row, records in zip(table, own, strict=True):
        assert {name: pytest.approx(p, abs=1e-6) for name, p in zip(names, row, strict=True)} == {
            one["label"]: one["score"] for one in records
        }
    assert table.sum(axis=1).max() > 1.001 or table.sum(axis=1).min() < 0.999  # sigmoids, not a softmax


def test_it_is_fitted_explained_and_verified(pipeline: Any) -> None:
    explainer = quick_fit(pipeline, TEXTS)
    why = explainer.explain(["rain wet cold"], target="LABEL_1")
    assert why.value[0] == pytest.approx(
        next(one["score"] for one in pipeline(["rain wet cold"], top_k=None)[0] if one["label"] == "LABEL_1"), abs=1e-6
    )
    assert 0 <= why.verify().fidelity <= 1


def test_texts_longer_than_the_model_reads_are_said_to_be_so(pipeline: Any) -> None:
    box = as_black_box(pipeline)
    long = " ".join(["sun"] * (3 * LIMIT))
    with pytest.warns(SointerWarning, match=f"1 of 2 texts are longer than the {LIMIT} tokens"):
        table = box(np.array([long, "sun"], dtype=object))
    cut = box(np.array([" ".join(["sun"] * (LIMIT - 1))], dtype=object))
    np.testing.assert_allclose(table[0], cut[0], atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SointerWarning)
        box(np.array([long], dtype=object))  # it is said once
