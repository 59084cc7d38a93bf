"""`explanation.plot(kind=...)`, by content: labels, lengths, marks; readable with one feature and with hundreds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib
from matplotlib import pyplot
from matplotlib.patches import Rectangle

from sointer.blackbox.box import BlackBox
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.data.texts import UNSEEN, TextFormat
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.masking.build import make_groups, make_removal
from sointer.masking.removal import Background
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Scored
from sointer.viz import plots
from sointer.viz.plots import maps
from sointer.viz.plots.canvas import shorten, shorten_all

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def terms(text: str) -> list[str]:
    """The words of a text; a name of two words is one."""
    return re.findall(r"new york|<script>|\$?\w+", text, re.IGNORECASE)


def explain(
    selected: list[list[int]],
    *,
    targets: list[int] | None = None,
    values: list[Any] | None = None,
    names: list[str] | None = None,
    outputs: tuple[str, ...] = ("cat", "dog"),
    texts: list[str] | None = None,
    continuous: bool = False,
    signed: bool = False,
) -> Explanation:
    """Scores fall with the place in `selected`; every second one of a row has a negative effect."""
    chosen = np.array(selected)
    n_features = len(names) if names else int(chosen.max()) + 1
    names = names or [f"f{i}" for i in range(n_features)]
    X = np.arange(float(len(chosen) * n_features)).reshape(len(chosen), n_features)
    data, input_format = X, InputFormat.infer(X, feature_names=names)
    if texts is not None:
        names = [*names, UNSEEN]
        input_format = TextFormat("text", names, "str", by="function", split=terms)
        data, X = input_format.encode(texts), np.zeros((len(chosen), len(names)))
    raw = np.random.default_rng(0).normal(size=(20, len(outputs))) if continuous else np.eye(len(outputs), dtype=int)
    source = ExplainedRows(
        black_box=BlackBox(lambda rows: np.zeros((len(rows), len(outputs)), dtype=int)),
        input_format=input_format,
        removal=make_removal("mean" if texts is None else "delete", X, input_format),
        outputs=Outputs.infer(raw, names=list(outputs)),
        groups=make_groups(None, names, input_format.column_feature),
        background=Background.of(data, np.random.default_rng(0)),
        data=data,
    )
    scores, effects = np.zeros(X.shape, dtype=np.float32), np.zeros(X.shape, dtype=np.float32)
    for row, units in enumerate(selected):
        for place, unit in enumerate(unit for unit in units if unit >= 0):
            scores[row, unit] = 10 - place
            effects[row, unit] = (10 - place) * (-1) ** place / 100
    targets = targets or [0] * len(chosen)
    codes = np.array(values if values is not None else [1] * len(chosen))
    known = {"effects": effects, "base": np.full(len(chosen), 0.5, dtype=np.float32)} if signed else {}
    sizes = np.full(len(chosen), chosen.shape[1])
    return Explanation.of(chosen, sizes, Scored(scores, codes, **known), np.array(targets), source)


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def overlapping(axis: Any) -> int:
    """How many neighbouring labels of an axis lie on each other, as drawn."""
    axis.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
    return sum(a.overlaps(b) for a, b in pairwise(boxes))


def test_effects_that_push_down_point_the_other_way_in_another_colour() -> None:
    ax = explain([[2, 0]], signed=True).plot(0, kind="effects")
    first, second, others = ax.patches
    np.testing.assert_allclose([first.get_width(), second.get_width(), others.get_width()], [0.1, -0.09, 0], atol=1e-7)
    assert first.get_facecolor() != second.get_facecolor()


def test_summary_says_how_often_and_for_which_value() -> None:
    explanation = explain([[0, 1], [0, 2], [0, 2], [0, 2]], values=[1, 1, 0, 0])
    ax = explanation.plot()
    assert labels(ax.yaxis) == ["f0", "f2", "f1"]
    yes, no = (container.patches for container in ax.containers)
    assert [bar.get_width() for bar in yes] == [0.5, 0.25, 0.25]
    assert [bar.get_width() for bar in no] == [0.5, 0.5, 0.0]
    assert [bar.get_x() for bar in no] == [0.5, 0.25, 0.25], "the second value begins where the first ends"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1 (2 rows)", "0 (2 rows)"]
    assert ax.get_title() == "what decides cat, over 4 rows"
    assert len(explanation.plot(kind="summary", n=1).containers[0].patches) == 1


def test_summary_of_numbers_is_cut_in_the_middle() -> None:
    explanation = explain([[0], [1], [1], [1]], continuous=True, values=[-1.0, 0.0, 1.0, 2.0])
    above, below = (container.patches for container in explanation.plot().containers)
    assert [bar.get_width() for bar in above] == [0.5, 0.0]
    assert [bar.get_width() for bar in below] == [0.25, 0.25]


def test_summary_wants_one_target() -> None:
    both = explain([[0], [1]], targets=[0, 1])
    with pytest.raises(InputError, match=r'2 targets .*kind="heatmap"'):
        both.plot(kind="summary")


def test_heatmap_shows_targets_by_features() -> None:
    explanation = explain([[0, 3], [0, 1], [2, 3], [2, 3]], targets=[0, 0, 1, 1])
    ax = explanation.plot()
    assert labels(ax.yaxis) == ["cat", "dog"]
    names = labels(ax.xaxis)
    table = {
        (target, name): value
        for target, row in zip(["cat", "dog"], np.asarray(ax.images[0].get_array()), strict=True)
        for name, value in zip(names, row, strict=True)
    }
    assert table["cat", "f0"] == table["dog", "f2"] == table["dog", "f3"] == 1.0
    assert table["cat", "f3"] == table["cat", "f1"] == 0.5
    assert table["cat", "f2"] == table["dog", "f0"] == 0.0
    assert names.index("f0") < names.index("f2"), "features stand where their target stands"
    written = {(text.get_position()): text.get_text() for text in ax.texts}
    assert written[names.index("f0"), 0] == "100"
    assert len(labels(explanation.plot(n=2).xaxis)) == 2


def test_words_are_marked_where_they_stand() -> None:
    names = ["song", "new york", "york", "$5"]
    text = "A SONG of New York;  songs cost <b> $5"
    explanation = explain([[0, 1]], names=names, texts=[text], signed=True)
    ax = explanation.plot(0)
    line = " ".join(text.split())
    drawn = [(p.get_gid(), p.get_x(), p.get_width()) for p in ax.patches if isinstance(p, Rectangle)]
    assert drawn == [("song", 2, 4), ("new york", line.index("New"), 3), ("new york", line.index("York"), 4)]
    marks = {patch.get_gid(): patch for patch in ax.patches}
    assert marks["song"].get_facecolor()[:3] != marks["new york"].get_facecolor()[:3], "one pushes up, one down"
    assert any("blue pushes up, orange pushes down" in note.get_text() for note in ax.texts)
    plain = explain([[0, 1]], names=names, texts=[text]).plot(0)
    assert len({patch.get_facecolor()[:3] for patch in plain.patches}) == 1, "no sign is known, so none is shown"
    written_at = {t.get_text(): t.get_position()[0] for t in ax.texts}
    assert written_at["songs"] == line.index("songs"), "the text stands where its marks do"
    assert ax.get_title() == "what decides cat (expected: 1), row 0"
    ax.figure.canvas.draw()


def test_long_documents_keep_the_lines_that_matter() -> None:
    text = "nothing here " * 600 + "the song " + "nothing there " * 300
    ax = explain([[0]], names=["song"], texts=[text]).plot(0)
    assert len([p for p in ax.patches if p.get_gid() == "song"]) == 1
    assert any("lines without selected words are left out" in text.get_text() for text in ax.texts)
    _, narrow = pyplot.subplots(figsize=(3, 3))
    assert explain([[0]], names=["song"], texts=["a song " * 9]).plot(0, ax=narrow) is narrow


def test_kinds_that_do_not_suit_are_refused_with_those_that_do() -> None:
    table = explain([[0]])
    with pytest.raises(InputError, match="kind is 'pie', expected one of 'bar', 'summary', 'heatmap', which suit"):
        table.plot(kind="pie")
    with pytest.raises(InputError, match="kind is 'words', expected one of 'bar', 'summary', 'heatmap'"):
        table.plot(0, kind="words")
    texts = explain([[0]], texts=["f0"])
    with pytest.raises(InputError, match=r"kind is 'image', expected one of .*'words'"):
        texts.plot(kind="image")
    with pytest.raises(InputError, match="expected a row alone"):
        texts.plot(kind="words")
    with pytest.raises(InputError, match="is about all rows"):
        table.plot(0, kind="summary")
    with pytest.raises(InputError, match="n must be an int of at least 1"):
        table.plot(kind="heatmap", n=0)
    with pytest.raises(InputError, match=r"Call explainer\.plot_history\(\) for that"):
        table.plot(kind="history")
    with pytest.raises(InputError, match="row is 'first', expected a whole number from 0 to 0"):
        table.plot("first")  # type: ignore[arg-type]
    assert plots.kinds(texts) == ["bar", "summary", "heatmap", "words"]
    assert plots.kinds(explain([[0]], signed=True)) == ["bar", "effects", "summary", "heatmap"]


@pytest.mark.parametrize("kind", ["bar", "effects", "summary", "heatmap"])
@pytest.mark.parametrize("n_features", [1, 200])
@pytest.mark.parametrize("given", [True, False])
def test_labels_never_lie_on_each_other(kind: str, n_features: int, given: bool) -> None:
    names = [f"feature {i}" for i in range(n_features)]
    explanation = explain([list(range(n_features))] * 2, names=names, signed=True)
    ax = pyplot.subplots(figsize=(5, 4), layout="constrained")[1] if given else None
    drawn = explanation.plot(0 if kind in ("bar", "effects") else None, kind=kind, n=n_features, ax=ax)
    assert ax is None or drawn is ax
    assert overlapping(drawn.yaxis) == 0
    shown = labels(drawn.yaxis if kind != "heatmap" else drawn.xaxis)
    assert shown[0].startswith("feature ")
    if n_features == 200 and not given:
        n_lines = 200 if kind == "summary" else 201  # and all others
        assert len(shown) == (n_lines if kind != "heatmap" else len(shown)), "an own figure has room for all"


def test_names_are_short_on_one_line_and_stay_different() -> None:
    assert shorten("ab\n c") == "ab c"
    assert len(shorten("x" * 100, 20)) == 20
    assert shorten("") == "''"
    alike = [f"{'a' * 40}{i}{'b' * 40}" for i in range(3)]
    assert len(set(shorten_all(alike))) == 3
    dollars = explain([[0, 1]], names=["$a_{", "b$ <i>"])
    dollars.plot(0).figure.canvas.draw()
    assert labels(dollars.plot(0).yaxis) == ["$a_{ = 0", "b$ <i> = 1"]


def test_many_outputs_are_a_readable_map() -> None:
    names = [f"output {i}" for i in range(150)]
    ax = maps.interactions(np.ones((150, 150)), names)
    assert overlapping(ax.yaxis) == 0
    ax = maps.neighbours(np.arange(25.0).reshape(5, 5))
    values = np.ma.filled(ax.images[0].get_array(), np.nan)
    assert values[2, 2] == 12.0
    assert values[0, 1] == 1.0


def test_nothing_global_is_changed() -> None:
    before = dict(matplotlib.rcParams)
    for kind in ("bar", "summary", "heatmap", "words"):
        explanation = explain([[0]], texts=["f0"])
        explanation.plot(0 if kind in ("bar", "words") else None, kind=kind).figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before


def test_html_of_texts_marks_words_and_escapes_the_rest() -> None:
    explanation = explain([[0, 1]], names=["song", "<script>"], texts=["<script>alert(1)</script> a Song"])
    page = explanation.to_html()
    assert "<script>" not in page
    assert page.count("<mark") == 2
    assert ">Song</mark>" in page
    labelled = replace(explanation, source=replace(explanation.source, index=np.array(["<i>row</i>"])))
    assert "<td>&lt;i&gt;row&lt;/i&gt;</td>" in labelled._repr_html_()
