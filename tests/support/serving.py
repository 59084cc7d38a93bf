"""Small explainers of every kind, and a real server for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

from sointer import SOInter, TrainingConfig

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(120, 5))
FRAME = pd.DataFrame(
    {"colour": np.where(TABLE[:, 0] > 0, "red", "blue"), "size": TABLE[:, 1], "n": np.arange(120) % 7, 4: TABLE[:, 2]}
)
SPARSE = sp.csr_array(np.where(RNG.random((120, 40)) < 0.1, 1.0, 0.0))
IMAGES = RNG.random((60, 1, 6, 6))
WORDS = ["rain", "sun", "wind", "snow", "warm", "cold", "dry", "wet"]
TEXTS = [" ".join(RNG.choice(WORDS, size=6)) for _ in range(120)]


def model(X: Any) -> Any:
    return np.column_stack([X[:, 0] > 0, X[:, 0] * X[:, 1] > 0, X[:, 2] > 0.3]).astype(int)


def frame_model(X: pd.DataFrame) -> Any:
    return pd.DataFrame(
        {"warm": np.where(X["colour"] == "red", "yes", "no"), "big": np.where(X["size"] > 0, "yes", "no")}
    )


def sparse_model(X: Any) -> Any:
    return (X.toarray()[:, :3] > 0).astype(int)


def masks(X: Any) -> Any:
    return (X[:, 0] > 0.5).astype(int)


def pipeline() -> Any:
    labels = np.array([["rain" in text, "sun" in text] for text in TEXTS]).astype(int)
    return make_pipeline(CountVectorizer(), MultiOutputClassifier(LogisticRegression())).fit(TEXTS, labels)


@cache
def fitted(kind: str) -> SOInter:
    """An explainer that took a second to fit; tests must not change it."""
    data, predict = {
        "table": (TABLE, model),
        "groups": (TABLE, model),
        "frame": (FRAME, frame_model),
        "sparse": (SPARSE, sparse_model),
        "images": (IMAGES, masks),
        "texts": (TEXTS, pipeline()),
    }[kind]
    return fit(predict, data, **({"groups": {"both": [0, 1]}} if kind == "groups" else {}))


def fit(predict: Any, data: Any, **settings: Any) -> SOInter:
    quick = {
        "k": 2,
        "query_budget": 200,
        "random_state": 0,
        "training": TrainingConfig(n_epochs=2),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SOInter(predict, **{**quick, **settings}).fit(data)


@contextmanager
def command(*arguments: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`sointer serve ...` in a process of its own: its address and the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sointer", "serve", *map(str, arguments), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stderr is not None
        output = ""
        while (found := re.search(r"open (http://\S+)", output)) is None:
            line = process.stderr.readline()
            assert line, f"the server did not start: {output}"
            output += line
        yield found[1], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stderr.close()
