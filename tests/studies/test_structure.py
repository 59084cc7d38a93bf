"""The study of structure: it runs from a clean clone, compares like with like, and its random field is exact."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from repo_scripts import PICTURES, run_studies, study_modules
from sointer.errors import SointerError
from sointer.zoo.loaders import load_emotions

TABLES = "tables"

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def modules():
    return study_modules(TABLES, "structure", "structure_page", "real_structure")


def has_emotions() -> bool:
    try:
        load_emotions()
    except (SointerError, OSError):
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not has_emotions(), reason="the emotions data are not here and cannot be downloaded")
def test_the_smoke_setting_makes_results_page_and_figure(tmp_path: Path):
    done = run_studies("run", f"{TABLES}/structure", "--smoke", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "pages" / "structure.md").read_text()
    assert set(PICTURES.findall(page)) == {"structure.png"}
    assert "nan" not in page
    rows = [json.loads(line) for line in (tmp_path / "results" / TABLES / "structure.jsonl").read_text().splitlines()]
    assert len({row["method"] for row in rows}) == 3


def test_cases_are_matched_and_use_fresh_seeds(modules):
    cases = list(modules.structure.cases(False))
    assert {case["seed"] for case in cases} == set(range(203, 208))
    by_method = {
        method: [{**case, "method": ""} for case in cases if case["method"] == method]
        for method in modules.structure.METHODS
    }
    assert all(own == by_method["SOInter"] for own in by_method.values())


def test_rare_labels_are_rare_and_their_truth_is_planted(modules):
    problem = modules.structure.rare(8)
    X = problem.sample(20_000, random_state=0)
    labels = problem(X)[:, -1]
    assert 0.02 < labels.mean() < 0.06
    for feature in range(8):
        changed = X.copy()
        changed[:, feature] = np.random.default_rng(1).permutation(X[:, feature])
        assert (problem(changed)[:, -1] != labels).any() == (feature in problem.relevant[problem.targets[0]])


def test_pairs_are_matched_by_everything_but_the_method(modules):
    def row(method: str, seed: int, exact: float) -> dict:
        return {"problem": "xor", "budget": 500, "seed": seed, "method": method, "exact": exact}

    rows = [row("SOInter", 1, 1.0), row("SOInter-1", 1, 0.25), row("SOInter", 2, 1.0), row("SOInter-1", 3, 0.0)]
    assert modules.structure_page.paired(rows, "exact", "SOInter-1") == [0.75]


def test_the_random_field_is_the_most_likely_labelling_of_a_likelihood_at_its_maximum(modules):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    first = X[:, 0] + 0.3 * rng.normal(size=300) > 0
    Y = np.column_stack([first, first ^ (rng.random(300) < 0.1), X[:, 1] > 0]).astype(int)
    field = modules.real_structure.RandomField().fit(X, Y)
    links = dict(zip([(0, 1), (0, 2), (1, 2)], field.links_, strict=True))

    def score(x: np.ndarray, y: tuple[int, ...]) -> float:
        unary = sum(y[i] * (x @ field.weights_[:2, i] + field.weights_[2, i]) for i in range(3))
        return unary + sum(links[i, j] * y[i] * y[j] for i, j in links)

    everything = list(product((0, 1), repeat=3))
    for x, found in zip(X[:20], field.predict(X[:20]), strict=True):
        assert tuple(found) == max(everything, key=lambda y: score(x, y))
    assert links[0, 1] > 1 > abs(links[0, 2])
    # At the maximum, outputs go together as often as in the data, up to the penalty.
    p = np.exp([[score(x, y) for y in everything] for x in X])
    together = (p / p.sum(axis=1, keepdims=True)) @ [y[0] * y[1] for y in everything]
    assert together.mean() == pytest.approx((Y[:, 0] * Y[:, 1]).mean(), abs=0.02)
