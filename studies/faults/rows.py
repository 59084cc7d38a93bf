"""What does an explainer lose that is saved without training rows, `save(path, rows="synthetic")` or `"none"`?"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import StandardScaler

import sointer
from sointer import SOInter
from sointer.config import Rows
from sointer.errors import SointerError
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

SEEDS = (401, 402, 403)
N_EXPLAINED, N_QUERIES = 100, 5000
INDEPENDENT, CORRELATED = "independent features", "correlated features"
Model = Callable[[NDArray[np.float64]], NDArray[Any]]


def independent(seed: int) -> tuple[NDArray[np.float64], Model]:
    """Two labels of twelve independent features."""

    def labels(X: NDArray[np.float64]) -> NDArray[np.int64]:
        X = np.asarray(X)
        return np.column_stack([X[:, 0] + X[:, 1] > 0, np.where(X[:, 2] > 0, X[:, 3], X[:, 4]) > 0]).astype(np.int64)

    return np.random.default_rng(seed).normal(size=(1500, 12)), labels


def correlated(seed: int) -> tuple[NDArray[np.float64], Model]:
    """Breast cancer: thirty measures of tumours, many of which are nearly the same, and a forest."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    forest = RandomForestClassifier(100, random_state=seed).fit(X, y)
    order = np.random.default_rng(seed).permutation(len(X))
    return X[order], lambda rows: forest.predict(np.asarray(rows))[:, None]


PROBLEMS: dict[str, Callable[[int], tuple[NDArray[np.float64], Model]]] = {
    INDEPENDENT: independent,
    CORRELATED: correlated,
}


def cases(smoke: bool) -> Iterator[Case]:
    for seed in SEEDS[:1] if smoke else SEEDS:
        for problem in PROBLEMS:
            for rows in ("synthetic", "none"):
                yield {"problem": problem, "rows": rows, "seed": seed} | ({"quick": True} if smoke else {})


def run(problem: str, rows: Rows, seed: int, quick: bool = False) -> dict[str, Any]:
    data, model = PROBLEMS[problem](seed)
    fitted = SOInter(model, query_budget=500 if quick else N_QUERIES, random_state=seed, verbose=False)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        fitted.fit(data[N_EXPLAINED:])
        fitted.save(Path(folder, "keep"))
        fitted.save(Path(folder, rows), rows=rows)
        loaded = sointer.load(Path(folder, rows), model)
        sizes = [sum(f.stat().st_size for f in Path(folder, name).iterdir()) for name in ("keep", rows)]
        return {"share_of_bytes": round(sizes[1] / sizes[0], 3), **compared(fitted, loaded, data[:N_EXPLAINED])}


def compared(before: Any, after: Any, samples: NDArray[np.float64]) -> dict[str, Any]:
    """Explanations of the same samples, how they are judged, and samples called far, by both explainers."""
    one, other = before.explain(samples, target="all"), after.explain(samples, target="all")
    found = {
        "n_explanations": len(one),
        "same_selection": float((one.selected == other.selected).all(axis=1).mean()),
        "largest_difference_of_effects": float(np.abs(one.effects - other.effects).max()),
        "far_changed": float((one.far != other.far).mean()),
    }
    try:
        verdicts = one.verify(random_state=0), other.verify(random_state=0)
    except SointerError:
        return found | {"verify_refused": 1}
    changed = verdicts[0].verdict != verdicts[1].verdict
    difference = np.abs(verdicts[0].agreement - verdicts[1].agreement)
    return found | {
        "verify_refused": 0,
        "verdicts_changed": float(changed.mean()),
        "agreement_difference": float(difference.mean()),
    }


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    n, same = sum(row["n_explanations"] for row in rows), np.mean([row["same_selection"] for row in rows])
    return f"{n:,} explanations by explainers saved without training rows", (
        f'{same:.0%} select the same features; with `rows="synthetic"`, '
        f"{changed(rows, INDEPENDENT)} of verdicts changed with {INDEPENDENT}, {changed(rows, CORRELATED)} with "
        f'{CORRELATED}; with `rows="none"`, verification was refused in '
        f"{np.mean([row['verify_refused'] for row in rows if row['rows'] == 'none']):.0%} of cases"
    )


def changed(rows: list[Row], problem: str) -> str:
    found = [row["verdicts_changed"] for row in rows if row["problem"] == problem and "verdicts_changed" in row]
    return f"{np.mean(found):.0%}" if found else "-"


def page(rows: list[Row], images: Path) -> str:
    head = [
        "rows=",
        "features",
        "seeds",
        "same features selected",
        "largest change in effects",
        "verdicts changed",
        "change in agreement",
        "change in `far`",
        "size of files",
    ]
    lines = []
    for kept, problem in sorted({(row["rows"], row["problem"]) for row in rows}, reverse=True):
        own = [row for row in rows if (row["rows"], row["problem"]) == (kept, problem)]
        judged = [row for row in own if not row["verify_refused"]]
        lines.append(
            [
                f"`{kept!r}`",
                problem,
                str(len(own)),
                f"{mean_of(own, 'same_selection'):.1%}",
                f"{max(row['largest_difference_of_effects'] for row in own):.2g}",
                f"{mean_of(judged, 'verdicts_changed'):.1%}" if judged else "refused",
                f"{mean_of(judged, 'agreement_difference'):.3f}" if judged else "refused",
                f"{mean_of(own, 'far_changed'):.1%}",
                f"{mean_of(own, 'share_of_bytes'):.0%}",
            ]
        )
    return sections(
        "## Saved without training rows",
        f"What do explanations lose if an explainer is saved without its training rows? {N_EXPLAINED} samples each, "
        "all outputs: labels that depend on twelve independent features, and a forest on the breast cancer data, "
        "whose features are strongly correlated.",
        table(head, lines),
    )


def mean_of(rows: list[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


STUDY = Study("rows", cases, run, page)
