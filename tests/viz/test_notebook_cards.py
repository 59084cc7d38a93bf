"""What notebooks show of explainers, verifications and paths: the right numbers, and everything escaped."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from sointer import SOInter, Verification
from sointer.paths import Localities, Locality, Paths

EVIL = "<script>alert('$')</script>"


def test_a_verification() -> None:
    card = Verification(np.array([1.0, 0.5, 1.0, 1.0]), np.array([0.0, 0.5, 0.0, 0.5]), 1234)._repr_html_()
    for words in ("87.5%", "3 of 4 rows", "0.25 on average", "1,234 rows"):
        assert words in card


def test_paths_are_escaped_and_name_what_carries_the_effect() -> None:
    paths = Paths(
        selected=np.array([[0]]),
        total=np.array([[0.5]]),
        direct=np.array([[0.125]]),
        through=np.array([[[0.375]]]),
        outputs=np.array([[1]]),
        target=np.array([0]),
        value=np.array([1]),
        feature_names=[EVIL],
        output_names=["cat", EVIL],
        indistinguishable=[["cat", EVIL]],
        n_answers=9,
        unit="probability",
    )
    card = paths._repr_html_()
    assert "<script" not in card
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", card)]
    assert cells[1:3] == ["0.50", "0.12"]
    assert cells[3].endswith("(0.38)")
    assert "9 predictions for unmasked rows" in card


def test_an_explainer_before_and_after_fit(small_explainer: SOInter) -> None:
    fitted = small_explainer._repr_mimebundle_()
    assert fitted["text/plain"] == repr(small_explainer)
    card = fitted["text/html"]
    assert f"{small_explainer.held_out_agreement_:.1%}" in card
    assert f"{small_explainer.n_queries_:,} rows" in card
    worst = np.nanargmin(small_explainer.output_skill_)
    skill = f"{max(small_explainer.output_skill_[worst], 0):.0%}"
    assert f"{small_explainer.output_names_[worst]} ({skill} skill)" in card
    assert "4 of 8 features: " in card
    assert small_explainer.output_names_[0] in card
    raw = SOInter(small_explainer.model, k=4)._repr_html_()
    assert "SOInter" in raw
    assert "fitted</b>" not in raw


def test_localities_are_a_map_of_where_what_matters() -> None:
    found = Localities(
        EVIL,
        True,
        (Locality(2, (f"{EVIL} > 1",), 0.75, (EVIL, "b"), (0.5, 0.25)), Locality(1, (), 0.25, (), ())),
        (EVIL, "b"),
    )
    card = found._repr_html_()
    assert "<script" not in card
    rows = [
        [re.sub("<[^>]*>", "", cell).strip() for cell in re.findall("<td.*?</td>", row)] for row in card.split("<tr>")
    ]
    assert [row[1] for row in rows if row] == ["75%", "25%"]
    assert rows[-1][0] == "everywhere"
    assert rows[-1][2] == "nothing"
    assert rows[-2][2].endswith(" b")
    assert 'title="relevance 0.25"' in card


def test_shares_of_localities_add_up() -> None:
    shares = (0.586, 0.217, 0.197)
    leaves = tuple(Locality(i, (f"a > {i}",), share, ("a",), (0.5,)) for i, share in enumerate(shares))
    found = Localities("y", True, leaves, ("a", "b"))
    assert found.percents == [58, 22, 20]
    assert [line.split("%")[0].strip() for line in str(found).splitlines()[1:]] == ["58", "22", "20"]
    assert re.findall(r"> (\d+)%<", found._repr_html_()) == ["58", "22", "20"]
    labels = [label.get_text() for label in found.plot().get_yticklabels()]
    assert [re.findall(r"\((\d+)%\)", label) for label in labels] == [["58"], ["22"], ["20"]]


def test_chips_say_relevance_by_grey_and_effects_by_an_arrow(small_explainer: SOInter, small_data: np.ndarray) -> None:
    explanation = small_explainer.explain(small_data[:3], 0)
    assert explanation.effects is not None
    assert explanation.needed is not None
    table = explanation._repr_html_()
    shown = explanation.selected[0][explanation.selected[0] >= 0]
    for unit in shown:
        effect = explanation.effects[0, unit]
        assert f"</span> {effect:+.3g}".replace("-", "−") in table
    n_hollow = int((explanation.unit_mask & ~explanation.needed).sum())
    assert table.count(": not needed, selected only because k is that large") == n_hollow
    assert ("Hollow ones are not needed" in table) == (n_hollow > 0)
    plain = replace(explanation, effects=None, needed=None)._repr_html_()
    assert "▲" not in plain
    assert "▼" not in plain
    assert "not needed" not in plain


def test_names_in_the_card_are_escaped(small_explainer: SOInter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_explainer, "output_names_", [EVIL, *small_explainer.output_names_[1:]])
    monkeypatch.setattr(small_explainer, "feature_names_in_", [EVIL, *small_explainer.feature_names_in_[1:]])
    assert "<script" not in small_explainer._repr_html_()


def test_pictures_of_an_explainer(small_explainer: SOInter) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = small_explainer.plot_interactions()
    assert [label.get_text() for label in ax.get_yticklabels()] == small_explainer.output_names_
    matrix = small_explainer.output_interactions_
    off = ~np.eye(len(matrix), dtype=bool)
    np.testing.assert_allclose(np.ma.filled(ax.images[0].get_array(), np.nan)[off], matrix[off])
    if len(matrix) > 2:
        strongest = small_explainer.plot_interactions(n=2)
        best = np.argsort(-matrix.max(axis=1), kind="stable")[:2]
        shown = {label.get_text() for label in strongest.get_yticklabels()}
        assert shown == {small_explainer.output_names_[i] for i in best}
    steps = [row["step"] for row in small_explainer.history_ if "held_out_loss" in row]
    assert small_explainer.plot_history().lines[0].get_xdata().tolist() == steps
    pyplot.close("all")
