"""Raw texts: a fitted pipeline that begins with a vectoriser, cut into words and the model behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from sointer._support import containers, frames
from sointer.errors import InputError


def is_text(X: Any) -> bool:
    """Whether X is a list, an array or a column of strings, one document each."""
    if isinstance(X, str):
        raise InputError("X is one string, expected a list of them, one for each document. Give [text].")
    if containers.is_frame(X) or frames.backend_of(X) is not None or containers.is_sparse(X) or containers.is_tensor(X):
        return False
    if getattr(X, "ndim", 1) != 1 or not hasattr(X, "__len__") or len(X) == 0:
        return False
    wrong = [i for i, document in enumerate(X) if not isinstance(document, str)]
    if wrong and len(wrong) < len(X):
        document = list(X)[wrong[0]]
        raise InputError(
            f"X holds strings, but {len(wrong)} of {len(X)} documents are none: the first is {document!r:.40}, at "
            f"{wrong[0]}. Drop them, or give '' for an empty text."
        )
    return not wrong


@dataclass(frozen=True)
class TextPipeline:
    """The way from documents to counts of words, and the rest of the model, which takes those counts."""

    vectoriser: CountVectorizer
    rest: Any

    @classmethod
    def of(cls, model: Any) -> TextPipeline:
        """Cut a fitted Pipeline behind its vectoriser."""
        steps = [step for step in getattr(model, "named_steps", {}).values() if step not in (None, "passthrough")]
        if not isinstance(model, Pipeline) or len(steps) < 2 or not isinstance(steps[0], CountVectorizer):
            raise InputError(
                f"X holds strings, but the model is {containers.describe(model)}; expected a fitted scikit-learn "
                "Pipeline that begins with a CountVectorizer or TfidfVectorizer. Give such a pipeline, or turn the "
                "texts into numbers yourself and give the model behind that step."
            )
        try:
            check_is_fitted(model)
            check_is_fitted(steps[0], "vocabulary_")
        except NotFittedError as error:
            raise InputError("the model is a Pipeline that is not fitted; call its fit(texts, Y) first.") from error
        vectoriser, *others = steps
        if isinstance(vectoriser, TfidfVectorizer):
            # Weights depend on the other words of a document, so words are removed where they are still counts.
            weigh = TfidfTransformer(
                norm=vectoriser.norm,
                use_idf=vectoriser.use_idf,
                smooth_idf=vectoriser.smooth_idf,
                sublinear_tf=vectoriser.sublinear_tf,
            )
            weigh.fit(containers.csr_matrix(np.ones((1, len(vectoriser.vocabulary_)))))
            if vectoriser.use_idf:
                weigh.idf_ = vectoriser.idf_
            others = [weigh, *others]
        return cls(vectoriser, others[0] if len(others) == 1 else make_pipeline(*others))

    @property
    def words(self) -> list[str]:
        return [str(word) for word in self.vectoriser.get_feature_names_out()]

    def count(self, texts: Any) -> Any:
        """Documents as counts of words: CSR (documents, words)."""
        return CountVectorizer.transform(self.vectoriser, list(texts)).astype(np.float64)
