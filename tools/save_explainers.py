"""Write small explainers of every kind, and what they explain, into tests/io/saved, for later versions to load.

Run it once, with the version whose format is to be kept: PYTHONPATH=src:tests/support python tools/save_explainers.py
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from quick import (
    FRAME,
    IMAGES,
    SPARSE,
    TABLE,
    TEXTS,
    first_words,
    frame_labels,
    labels,
    masks,
    quick_fit,
    text_pipeline,
)
from sointer import EnergyConfig, SequenceExplainer
from sointer.io.explainers import STORAGE
from sointer.zoo import PlantedChain

SMALL = {"energy": EnergyConfig(hidden=(4,))}
N = 5


def explained(explainer: Any, X: Any, plain: Any) -> dict[str, Any]:
    found = explainer.explain(X, 0, query=False)
    return {
        "X": plain,
        "selected": found.selected.tolist(),
        "scores": found.scores.tolist(),
        "value": [str(value) for value in found.value],
    }


def main() -> None:
    home = Path(__file__).parent.parent / "tests" / "io" / "saved" / f"format{STORAGE.version}"
    shutil.rmtree(home, ignore_errors=True)
    kinds = {
        "table": (labels, TABLE[:40], TABLE[:N].tolist()),
        "groups": (labels, TABLE[:40], TABLE[:N].tolist()),
        "frame": (frame_labels, FRAME[:40], FRAME[:N].to_dict("list")),
        "sparse": (first_words, SPARSE[:60], SPARSE[:N].toarray().tolist()),
        "images": (masks, IMAGES[:20], IMAGES[:N].tolist()),
        "texts": (text_pipeline(), TEXTS[:40], TEXTS[:N]),
    }
    for kind, (model, X, plain) in kinds.items():
        groups = {"groups": {"both": [0, 1]}} if kind == "groups" else {}
        explainer = quick_fit(model, X, **SMALL, **groups)
        explainer.save(home / kind)
        (home / kind / "expected.json").write_text(json.dumps(explained(explainer, X[:N], plain)))
        print(kind, sum(path.stat().st_size for path in (home / kind).iterdir()), file=sys.stderr)
    chain = PlantedChain("carry", n_words=6, seed=3)
    explainer = SequenceExplainer(chain, k=2, window=0, query_budget=300, random_state=0).fit(
        chain.sequences(60, (3, 5), seed=0)
    )
    explainer.save(home / "sequences")
    sequences = chain.sequences(N, (3, 5), seed=1)
    found = explainer.explain(sequences)
    expected = {"X": sequences, "selected": found.selected.tolist(), "scores": found.scores.tolist()}
    (home / "sequences" / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main()
