"""Text-classification pipelines of transformers, recognised by their class, so that nothing of it is imported."""

from __future__ import annotations

import warnings
from typing import Any

from sointer.errors import SointerWarning


def is_text_classification(model: Any) -> bool:
    """Whether a model is a text-classification pipeline of transformers."""
    return any(
        base.__name__ == "TextClassificationPipeline" and base.__module__.split(".")[0] == "transformers"
        for base in type(model).__mro__
    )


class TextClassification:
    """From texts to the score of every label, whatever the pipeline's own `top_k` is."""

    declared_kind = "probability"

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self._has_warned = False

    def __call__(self, X: Any) -> Any:
        """The scores of all labels, for each text."""
        texts = list(X)
        self._warn_about_long(texts)
        return self.pipeline(texts, top_k=None, truncation=True)

    def _warn_about_long(self, texts: list[str]) -> None:
        """Say once that texts are longer than what the model reads."""
        tokenizer = getattr(self.pipeline, "tokenizer", None)
        limit = getattr(tokenizer, "model_max_length", None)
        if tokenizer is None or limit is None or self._has_warned:
            return
        # No token is shorter than a letter.
        n_long = sum(len(tokenizer(text)["input_ids"]) > limit for text in texts if len(text) > limit)
        if n_long:
            self._has_warned = True
            warnings.warn(
                f"{n_long} of {len(texts)} texts are longer than the {limit} tokens that the model reads: it is given "
                "their beginnings, and what stands behind can only be selected once words before it are deleted. "
                "Explain shorter parts of them to see what decides there.",
                SointerWarning,
                stacklevel=2,
            )
