"""Plots by content: labels, bar lengths, outlines; and nothing global is touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib
from matplotlib import pyplot

from sointer.blackbox.box import BlackBox
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.masking.build import make_groups, make_removal
from sointer.masking.removal import Background
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Scored
from sointer.paths import Localities, Locality, Paths
from sointer.viz import plots
from sointer.viz.plots import bars as bar_plots
from sointer.viz.plots import images as image_plots
from sointer.viz.plots import maps
from sointer.viz.plots.canvas import short, signed

matplotlib.use("Agg")

X = np.arange(24.0).reshape(4, 6)
SELECTED = np.array([[2, 0], [2, 1], [2, 5], [0, 5]])


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


EFFECTS = np.tile(np.array([-0.1, 0.02, 0.3, 0.0, 0.05, 0.01], dtype=np.float32), (4, 1))
BASE = np.full(4, 0.4, dtype=np.float32)
NEEDED = np.zeros((4, 6), dtype=bool)
NEEDED[:, 2] = True
NEEDED[3, 5] = True


def explanation(targets: tuple[int, ...] = (1, 1, 1, 1), **known: Any) -> Explanation:
    """`known` are effects, base, needed and locality, where there are any."""
    names = [f"f{i}" for i in range(6)]
    input_format = InputFormat.infer(X, feature_names=names)
    raw = np.array([[0, 1], [1, 0], [0, 0], [1, 1]])
    source = ExplainedRows(
        black_box=BlackBox(lambda rows: np.column_stack([rows[:, 0] > 9, rows[:, 1] > 9])),
        input_format=input_format,
        removal=make_removal("mean", X, input_format),
        outputs=Outputs.infer(raw, names=["cat", "dog"]),
        groups=make_groups(None, names, input_format.column_feature),
        background=Background.of(X, np.random.default_rng(0)),
        data=X,
    )
    scores = np.tile(np.array([0.5, 0.25, 2.0, 0.0, 0.0, 0.125], dtype=np.float32), (4, 1))
    scored = Scored(scores, np.array([1, 0, 0, 1]), **known)
    return Explanation.of(SELECTED, np.full(4, 2), scored, np.array(targets), source)


def bars(ax: object) -> list[tuple[str, float]]:
    labels = [label.get_text() for label in ax.get_yticklabels()]  # type: ignore[attr-defined]
    return list(zip(labels, [patch.get_width() for patch in ax.patches], strict=True))  # type: ignore[attr-defined]


def test_bar_of_a_row_shows_its_selected_features_best_first() -> None:
    ax = bar_plots.bar(explanation(), row=0)
    assert bars(ax) == [("f2 = 2", 2.0), ("f0 = 0", 0.5)]
    assert ax.get_title() == "what decides dog (expected: 1), row 0"
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the best is on top"


@pytest.mark.parametrize(
    ("value", "words", "effect"),
    [
        (2021.0, "2,021", "+2,021"),
        (-4452.3, "-4,452", "\N{MINUS SIGN}4,452"),
        (999.7, "1,000", "+1,000"),
        (0.12345, "0.123", "+0.123"),
        (1e20, "1e+20", "+1e+20"),
        (0.0, "0", "+0"),
    ],
)
def test_large_numbers_keep_all_digits_before_the_point(value: float, words: str, effect: str) -> None:
    assert (short(value), signed(value)) == (words, effect)


def test_a_sample_with_a_label_is_named_by_it() -> None:
    made = explanation()
    labelled = replace(made, source=replace(made.source, index=np.array(["a", "b-7", "c", "d"])))
    assert bar_plots.bar(labelled, row=1).get_title() == "what decides dog (expected: 0), sample b-7"


def test_bar_over_all_rows_shows_how_often_each_was_selected() -> None:
    ax = bar_plots.bar(explanation(), n=3)
    assert bars(ax) == [("f2", 0.75), ("f0", 0.5), ("f5", 0.5)]
    assert "dog" in ax.get_title()
    assert ax.get_xlim() == (0, 1)


def test_bar_wants_one_target_or_a_row() -> None:
    with pytest.raises(InputError, match=r"2 targets.*choose a row"):
        bar_plots.bar(explanation((0, 1, 1, 1)))
    with pytest.raises(InputError, match="row is 4, expected 0 to 3"):
        bar_plots.bar(explanation(), row=4)
    assert bar_plots.bar(explanation(), row=-1).get_title() == "what decides dog (expected: 1), row 3"


def test_explanation_plot_is_bar_on_the_given_axes() -> None:
    _, ax = pyplot.subplots()
    assert explanation().plot(row=1, ax=ax) is ax
    assert [name for name, _ in bars(ax)] == ["f2 = 8", "f1 = 7"]


def test_relevance_has_one_colour_and_effects_have_one_for_each_sign() -> None:
    left = explanation(effects=EFFECTS, base=BASE).plot(0)
    right = left.figure.axes[1]
    assert [patch.get_width() for patch in left.patches] == [2.0, 0.5]
    assert len({patch.get_facecolor() for patch in left.patches}) == 1, "relevance has no sign"
    labels = [label.get_text() for label in left.get_yticklabels()]
    assert labels == ["f2 = 2", "f0 = 0", "all others"]
    np.testing.assert_allclose([patch.get_width() for patch in right.patches], [0.3, -0.1, 0.08], atol=1e-6)
    up, down, rest = (patch.get_facecolor() for patch in right.patches)
    assert up == rest != down, "by sign"
    assert down != left.patches[0].get_facecolor() != up
    assert [text.get_text() for text in right.texts] == ["+0.3", "−0.1", "+0.08"]
    assert right.get_xlabel() == (
        "pushes the probability that dog is 1 up (+) or down (−)\n0.4 where all is at its mean, 0.68 with all effects"
    )
    assert left.figure.get_suptitle() == "what decides dog (expected: 1), row 0"


def test_without_effects_nothing_is_coloured_by_sign() -> None:
    ax = explanation().plot(0)
    assert len(ax.figure.axes) == 1
    assert len({patch.get_facecolor() for patch in ax.patches}) == 1
    assert plots.kinds(explanation()) == ["bar", "summary", "heatmap"]
    with pytest.raises(InputError, match="kind is 'effects', expected one of 'bar', 'summary', 'heatmap'"):
        explanation().plot(0, kind="effects")


def test_effects_can_be_drawn_on_any_axes() -> None:
    _, ax = pyplot.subplots()
    known = explanation(effects=EFFECTS, base=BASE)
    assert known.plot(0, kind="effects", n=1, ax=ax) is ax
    assert [name for name, _ in bars(ax)] == ["f2 = 2", "all others"]
    np.testing.assert_allclose([width for _, width in bars(ax)], [0.3, -0.02], atol=1e-6)
    _, given = pyplot.subplots()
    assert len(known.plot(0, ax=given).patches) == 2, "on an ax of the caller, relevance alone"
    with pytest.raises(InputError, match="about one row"):
        known.plot(kind="effects")


def test_what_is_not_needed_is_hollow_and_not_counted() -> None:
    padded = explanation(needed=NEEDED)
    ax = padded.plot(0)
    first, second = (patch.get_facecolor() for patch in ax.patches)
    assert first[3] == 1.0
    assert second[3] == 0.0, "hollow"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["not needed"]
    assert explanation().plot(0).get_legend() is None
    ax = bar_plots.bar(padded)
    assert bars(ax) == [("f2", 0.75), ("f5", 0.25)]
    assert ax.get_xlabel() == "share of rows that need it"
    assert padded.summary() == {"dog": [("f2", 0.75), ("f5", 0.25)]}
    assert bar_plots.bar(explanation()).get_xlabel() == "share of rows that selected it"
    table = np.asarray(padded.plot(kind="heatmap").images[0].get_array())
    np.testing.assert_array_equal(table, [[0.75, 0.25]])


def test_the_frame_says_what_is_known() -> None:
    plain = ["sample", "target", "value", "value_source", "rank", "feature", "feature_value", "score"]
    assert list(explanation().to_frame()) == plain
    known = explanation(needed=NEEDED, effects=EFFECTS, base=BASE, locality=np.array([3, 3, 5, 5])).to_frame()
    assert list(known) == [*plain, "needed", "effect", "locality"]
    assert known.needed.tolist() == [True, False, True, False, True, False, False, True]
    np.testing.assert_allclose(known.effect, EFFECTS[0, SELECTED.ravel()])
    assert known.locality.tolist() == [3, 3, 3, 3, 5, 5, 5, 5]


def test_a_map_of_localities_has_a_row_for_each_and_is_empty_where_nothing_matters() -> None:
    found = Localities(
        "dog",
        True,
        (
            Locality(4, ("f0 > 1", "f1 <= 2"), 0.75, ("f2",), (0.5,)),
            Locality(2, (), 0.25, ("f3", "f2"), (0.4, 0.1)),
        ),
        ("f0", "f1", "f2", "f3"),
    )
    ax = found.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["f0 > 1 and f1 <= 2 (75%)", "everywhere (25%)"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["f2", "f3"]
    values = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(values, [[0.5, np.nan], [0.1, 0.4]])
    assert sorted(text.get_text() for text in ax.texts) == ["0.1", "0.4", "0.5"]
    assert ax.get_title() == "what decides dog, by region"


def test_history_draws_loss_and_agreement_over_steps() -> None:
    rows = [
        {"stage": "queried twice", "seconds": 0.1},
        {"stage": "pre-training", "step": 100, "held_out_loss": 0.5, "held_out_agreement": 0.8},
        {"stage": "round 1", "step": 200, "held_out_loss": 0.25, "held_out_agreement": 0.9},
    ]
    ax = bar_plots.history(rows)
    assert ax.lines[0].get_xydata().tolist() == [[100, 0.5], [200, 0.25]]
    right = next(other for other in ax.figure.axes if other is not ax)
    assert right.lines[0].get_xydata().tolist() == [[100, 0.8], [200, 0.9]]
    with pytest.raises(InputError, match="nothing to draw"):
        bar_plots.history(rows[:1])


def test_interactions_draws_the_matrix_without_its_diagonal() -> None:
    ax = maps.interactions([[0, 2], [2, 0]], ["cat", "dog"])
    values = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_array_equal(values, [[np.nan, 2], [2, np.nan]])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["cat", "dog"]


def test_outline_of_one_pixel_is_its_four_edges() -> None:
    mask = np.zeros((2, 2), dtype=bool)
    mask[1, 0] = True
    edges = {
        ((-0.5, 0.5), (0.5, 0.5)),
        ((-0.5, 1.5), (0.5, 1.5)),
        ((-0.5, 0.5), (-0.5, 1.5)),
        ((0.5, 0.5), (0.5, 1.5)),
    }
    assert set(image_plots.outline(mask)) == edges
    assert image_plots.outline(np.zeros((2, 2), dtype=bool)) == []


def paths(selected: list[list[int]], total: list[list[float]]) -> Paths:
    """Of one target, everything direct."""
    effects, n = np.array(total), len(selected)
    return Paths(
        selected=np.array(selected),
        total=effects,
        direct=effects,
        through=np.where(np.isnan(effects), np.nan, 0.0)[:, :, None],
        outputs=np.zeros((n, 1), dtype=np.int64),
        target=np.ones(n, dtype=np.int64),
        value=np.ones(n, dtype=np.int64),
        feature_names=["rare", "common", "slight"],
        output_names=["cat", "dog"],
        indistinguishable=[["cat", "dog"]],
        n_answers=7,
        unit="probability",
    )


def test_flow_shows_the_features_that_the_summary_puts_first() -> None:
    effects = paths([[0], [1], [1], [1], [2]], [[0.6], [0.4], [0.4], [0.4], [0.1]])
    for n in (1, 2):
        shown = [text.get_text().split()[0] for text in maps.flow(effects, n=n).texts]
        first = [route.feature for route in effects.summary(n)["dog"]]
        assert first == ["common", "rare"][:n]
        assert set(shown) & {"rare", "common", "slight"} == set(first)


def test_flow_says_what_was_judged_by_what() -> None:
    texts = [text.get_text() for text in maps.flow(paths([[0]], [[0.5]])).texts]
    assert "cannot be distinguished (one-to-one in all 7 predictions for unmasked rows): cat, dog" in texts


def test_flow_of_a_row_without_selected_features() -> None:
    effects = paths([[0], [-1]], [[0.5], [np.nan]])
    assert maps.flow(effects, row=0).get_title() == "row 0: why dog is 1"
    with pytest.raises(InputError, match="row 1 has no selected feature"):
        maps.flow(effects, row=1)
    with pytest.raises(InputError, match="row 1 has no selected feature"):
        effects.plot(row=-1)
    with pytest.raises(InputError, match="no row has a selected feature"):
        maps.flow(effects.pick(1))
    with pytest.raises(InputError, match="n must be an int of at least 1"):
        maps.flow(effects, n=0)


def test_nothing_is_shown_and_no_style_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyplot, "show", lambda *_, **__: pytest.fail("plt.show was called"))
    before = dict(matplotlib.rcParams)
    bar_plots.bar(explanation(), row=0)
    maps.interactions(np.zeros((2, 2)), ["a", "b"]).figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before
