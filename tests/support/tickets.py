"""Support tickets with a text, a number, a category and a date, and a model of them whose reasons are known."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

FILLER = [
    "the",
    "order",
    "was",
    "late",
    "and",
    "my",
    "box",
    "came",
    "with",
    "a",
    "broken",
    "part",
    "please",
    "check",
    "this",
    "item",
    "today",
    "thanks",
    "hello",
    "team",
    "price",
    "card",
]
KEY = {"refund": 0.3, "urgent": 0.15, "asap": 0.15}
OUTPUTS = ["refund", "urgent", "escalate"]


def tickets(n: int, seed: int) -> pd.DataFrame:
    """Tickets: `text`, `age`, `plan` and `since`."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(n):
        words = [str(word) for word in rng.choice(FILLER, rng.integers(6, 12))]
        for word, share in KEY.items():
            if rng.random() < share:
                words.insert(int(rng.integers(len(words) + 1)), word)
        texts.append(" ".join(words).capitalize() + ".")
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), "D")
    plan = rng.choice(["free", "pro", "team"], n, p=[0.4, 0.4, 0.2])
    return pd.DataFrame({"text": texts, "age": rng.integers(18, 80, n), "plan": plan, "since": since})


def words_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def desk(X: pd.DataFrame) -> pd.DataFrame:
    """Refund: the word, on the plan pro. Urgent: one of two words, or age. Escalate: both."""
    said = [words_in(text) for text in X["text"]]
    refund = np.array(["refund" in words for words in said]) & (X["plan"] == "pro").to_numpy()
    urgent = np.array([bool(words & {"urgent", "asap"}) for words in said]) | (X["age"] > 60).to_numpy()
    return pd.DataFrame({"refund": refund, "urgent": urgent, "escalate": refund & urgent}).astype(int)


def smallest(ticket: Any, target: str) -> list[set[str]]:
    """The smallest sufficient sets of a ticket whose answer is yes."""
    refund = {"text: refund", "plan"}
    urgent = [{f"text: {word}"} for word in ("urgent", "asap") if word in words_in(ticket["text"])]
    urgent += [{"age"}] if ticket["age"] > 60 else []
    return {"refund": [refund], "urgent": urgent, "escalate": [refund | one for one in urgent]}[target]
