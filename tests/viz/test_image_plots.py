"""Pictures of explained images: every colour and line is where the arrays say; nothing global is touched."""

from __future__ import annotations

import base64
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib
from matplotlib import pyplot

from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.masking.build import make_groups, make_removal
from sointer.masking.groups import Patches
from sointer.masking.removal import Background
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Scored
from sointer.masking.superpixels import Superpixels
from sointer.viz.plots import images as image_plots
from sointer.viz.plots.canvas import SELECTED, TARGET, label_colours, number_colours, to_rgb
from sointer.viz.plots.images import ImageView, borders, png

matplotlib.use("Agg")

Line = tuple[tuple[float, float], tuple[float, float]]


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def some_images(n: int = 3, channels: int = 3, height: int = 6, width: int = 8) -> np.ndarray:
    return np.random.default_rng(0).random((n, channels, height, width))


def explain(
    images: np.ndarray,
    target: Any,
    selected: Any,
    *,
    masks: np.ndarray | None = None,
    known: bool = True,
    groups: Any = None,
    regions: np.ndarray | None = None,
) -> Explanation:
    """An explanation with the given target (rows,) and selected units (rows, k), of masks that are light at the top."""
    n, _, height, width = images.shape
    if masks is None:
        masks = np.broadcast_to((np.arange(height) < height // 2)[:, None], (n, height, width)).astype(int)
    flat = masks.reshape(n, -1)
    input_format = InputFormat.infer(images)
    data = input_format.encode(images)
    targets = np.broadcast_to(np.asarray(target), n).copy()
    selected = np.broadcast_to(np.asarray(selected), (n, np.shape(selected)[-1]))
    made = make_groups(groups, input_format.feature_names, input_format.column_feature, input_format).bind(data)
    outputs = Outputs.infer(flat, shape=(height, width))
    source = ExplainedRows(
        black_box=None,
        input_format=input_format,
        removal=make_removal("zero", data, input_format),
        outputs=outputs,
        groups=made,
        background=Background.of(data, np.random.default_rng(0)),
        data=data,
        predicted=flat if known else None,
        **({} if regions is None else {"regions": regions, "region_names": ["the <b>box</b>"] * len(regions)}),
    )
    values = outputs.encode(flat)[np.arange(n), np.minimum(targets, height * width - 1)]
    sizes = (selected >= 0).sum(axis=1)
    scored = Scored(np.zeros((n, made.n_units), np.float32), values)
    return Explanation.of(selected, sizes, scored, targets, source)


def lines(ax: Any, label: str) -> set[Line]:
    [found] = [part for part in ax.collections if part.get_label() == label]
    return {tuple(sorted(tuple(map(float, point)) for point in segment)) for segment in found.get_segments()}  # type: ignore[misc]


def square(row: int, column: int) -> set[Line]:
    """The four edges of a pixel, as `lines` writes them."""
    top, bottom, left, right = row - 0.5, row + 0.5, column - 0.5, column + 0.5
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return {tuple(sorted(pair)) for pair in zip(corners, [*corners[1:], corners[0]], strict=True)}  # type: ignore[misc]


def fill(ax: Any) -> np.ndarray:
    """How opaque the green over each pixel is."""
    painted = np.asarray(ax.images[1].get_array())
    np.testing.assert_allclose(painted[..., :3], np.broadcast_to(np.array(SELECTED) / 255, painted[..., :3].shape))
    return painted[..., 3]


# --- one image -------------------------------------------------------------------------------------------


def test_three_panels_show_image_mask_and_rectangle() -> None:
    images = some_images()
    axes = explain(images, target=1 * 8 + 2, selected=[3 * 8 + 5, 2 * 8 + 5, 2 * 8 + 1]).plot(row=1)
    first, second, third = axes
    assert first.get_title() == "(1, 2) = 1"
    np.testing.assert_array_equal(first.images[0].get_array(), np.rint(255 * images[1].transpose(1, 2, 0)))
    assert second.get_title() == "what the model predicts"
    dark, light = label_colours(2)
    mask = np.asarray(second.images[0].get_array())
    assert (mask[:3] == light).all()
    assert (mask[3:] == dark).all()
    assert third.get_title() == "rows 1 to 3, columns 1 to 5"
    np.testing.assert_array_equal(
        third.images[0].get_array(), np.rint(255 * images[1][:, 1:4, 1:6].transpose(1, 2, 0)), "the pixels themselves"
    )
    assert third.images[0].get_extent() == [0.5, 5.5, 3.5, 0.5], "where they are in the image"
    for ax in axes:
        assert lines(ax, "target") == square(1, 2)
    for ax in (first, second):
        assert lines(ax, "selected") == (square(3, 5) ^ square(2, 5)) | square(2, 1)


def test_better_pixels_are_greener() -> None:
    explanation = explain(some_images(), target=0, selected=[20, 7, 33, 12])
    opacity = fill(explanation.plot(row=0)[0]).ravel()
    order = opacity[[20, 7, 33, 12]]
    assert (np.diff(order) < 0).all()
    assert order.min() > 0.2
    assert order.max() < 0.8, "the image is seen through it"
    assert (np.delete(opacity, [20, 7, 33, 12]) == 0).all()


def test_a_mask_that_is_not_known_is_left_out_and_not_asked_for() -> None:
    first, last = explain(some_images(), target=0, selected=[20, 7], known=False).plot(row=0)
    assert first.get_title() == "(0, 0), expected: 1"
    assert last.get_title() == "rows 0 to 2, columns 0 to 7"


def test_the_title_says_what_the_model_predicts() -> None:
    explanation = explain(some_images(), target=[0, 47, 47], selected=[20])
    box = np.zeros((1, 48), dtype=bool)
    box[0, 20:] = True  # mostly dark
    source = replace(explanation.source, regions=box, region_names=["box"])
    targets, values = np.array([0, 47, 48]), np.array([0, 0, 1])
    scored = Scored(explanation.scores, values)
    other = Explanation.of(explanation.selected, np.ones(3, int), scored, targets, source)
    titles = [ax.get_title() for ax in other.plot()]
    assert titles == ["(0, 0) = 1", "(5, 7) = 0", "box: mostly 0"]


def test_given_axes_get_the_overlay_alone() -> None:
    _, ax = pyplot.subplots()
    assert explain(some_images(), target=9, selected=[20, 7]).plot(row=0, ax=ax) is ax
    assert len(ax.figure.axes) == 1
    assert lines(ax, "selected") == square(2, 4) | square(0, 7)
    assert lines(ax, "target") == square(1, 1)


def test_nothing_selected_shows_the_target_alone() -> None:
    panels = explain(some_images(), target=9, selected=[[4, 5], [-1, -1], [4, -1]]).plot(row=1)
    assert (fill(panels[0]) == 0).all()
    assert lines(panels[0], "selected") == set()
    assert panels[-1].get_title() == "rows 1 to 1, columns 1 to 1"


def test_a_region_is_outlined_whole() -> None:
    box = np.zeros((6, 8), dtype=bool)
    box[1:3, 4:7] = True
    explanation = explain(some_images(), target=48, selected=[9], regions=box.reshape(1, -1))
    panels = explanation.plot(row=0)
    edges: set[Line] = set()
    for row, column in np.argwhere(box):
        edges ^= square(row, column)
    assert lines(panels[0], "target") == edges
    assert panels[0].get_title().startswith("the <b>box</b>: ")
    assert panels[-1].get_title() == "rows 1 to 2, columns 1 to 6"
    assert "<b>" not in explanation.to_html()


def test_outputs_that_are_not_pixels_have_no_target_in_the_picture() -> None:
    masks = explain(some_images(), target=1, selected=[9, 10])
    outputs = Outputs.infer(np.array([[0, 1], [1, 0], [1, 1]]), names=["cat", "$dog$ $"])
    source = replace(masks.source, outputs=outputs, predicted=np.array([[0, 1], [1, 0], [1, 1]]))
    explanation = Explanation.of(
        masks.selected, np.full(3, 2), Scored(masks.scores, np.array([1, 0, 1])), np.ones(3, dtype=int), source
    )
    first, last = explanation.plot(row=2)
    first.figure.canvas.draw()
    assert first.get_title() == "$dog$ $ = 1"
    assert lines(first, "target") == set()
    assert last.get_title() == "rows 1 to 1, columns 1 to 2"
    assert "<img" in explanation.to_html()


def test_patches_are_outlined_one_by_one() -> None:
    explanation = explain(some_images(height=4, width=6), target=0, selected=[1, 2, 5], groups=Patches(2))
    first = explanation.plot(row=0)[0]
    ranks = ImageView.of(explanation, 0).ranks
    top = [[-1, -1, 0, 0, 1, 1]] * 2
    bottom = [[-1, -1, -1, -1, 2, 2]] * 2
    np.testing.assert_array_equal(ranks, [*top, *bottom])
    between = {((3.5, -0.5), (3.5, 0.5)), ((3.5, 0.5), (3.5, 1.5)), ((3.5, 1.5), (4.5, 1.5)), ((4.5, 1.5), (5.5, 1.5))}
    assert between <= lines(first, "selected"), "neighbouring patches keep the line between them"
    assert len(np.unique(fill(first))) == 4


def test_superpixels_are_those_of_the_row() -> None:
    pytest.importorskip("skimage")
    spec = Superpixels(6)
    images = np.zeros((2, 3, 16, 16))
    images[0, 0, :, 6:] = images[1, 2, 9:, :] = 1.0  # half red, cut upright; half blue, cut across
    explanation = explain(images, target=0, selected=[1, 3], groups=spec)
    segments = [spec.segment(image).reshape(16, 16) for image in images]
    assert min(map(np.max, segments)) >= 3
    assert (segments[0] != segments[1]).any()
    for row in (0, 1):
        expected = np.select([segments[row] == 1, segments[row] == 3], [0, 1], -1)
        np.testing.assert_array_equal(ImageView.of(explanation, row).ranks, expected)


@pytest.mark.parametrize(("channels", "height", "width", "k"), [(1, 6, 6, 1), (2, 5, 64, 40), (4, 128, 128, 300)])
def test_any_channels_and_sizes_are_drawn(channels: int, height: int, width: int, k: int) -> None:
    images = some_images(2, channels, height, width)
    selected = np.random.default_rng(0).permutation(height * width)[:k]
    explanation = explain(images, target=height * width - 1, selected=selected)
    axes = explanation.plot(row=0)
    axes[0].figure.canvas.draw()
    assert (fill(axes[0]) > 0).sum() == k
    shown = np.asarray(axes[0].images[0].get_array())
    grey = np.rint(255 * images[0].mean(axis=0))
    np.testing.assert_allclose(shown, np.repeat(grey[..., None], 3, axis=2), atol=1)


def test_a_table_is_still_drawn_as_bars_and_cannot_be_drawn_as_an_image() -> None:
    pictures = explain(some_images(), target=0, selected=[3])
    table = np.arange(24.0).reshape(4, 6)
    input_format = InputFormat.infer(table)
    groups = make_groups(None, input_format.feature_names)
    outputs = Outputs.infer(np.eye(4)[:, :2])
    source = replace(
        pictures.source, input_format=input_format, data=table, groups=groups, outputs=outputs, predicted=None
    )
    explanation = Explanation.of(
        np.array([[3], [2], [1], [0]]),
        np.ones(4, int),
        Scored(np.ones((4, 6), np.float32), np.ones(4, int)),
        np.zeros(4, int),
        source,
    )
    assert [label.get_text() for label in explanation.plot(row=0).get_yticklabels()] == ["x3 = 3"]
    with pytest.raises(InputError, match="kind is 'image', expected one of 'bar', 'summary', 'heatmap'"):
        explanation.plot(row=0, kind="image")


# --- a grid ----------------------------------------------------------------------------------------------


def test_without_a_row_the_first_eight_are_shown() -> None:
    explanation = explain(some_images(n=10), target=np.arange(10), selected=[20, 7])
    axes = explanation.plot()
    assert [ax.get_title() for ax in axes] == [f"({p // 8}, {p % 8}) = 1" for p in range(8)]
    assert len(axes[0].figure.axes) == 8
    assert lines(axes[5], "target") == square(0, 5)


def test_rows_and_columns_of_a_grid_can_be_chosen() -> None:
    explanation = explain(some_images(n=10), target=np.arange(10), selected=[20, 7])
    axes = image_plots.image_grid(explanation, rows=[9, -2, 0], columns=2)
    assert [ax.get_title() for ax in axes] == ["(1, 1) = 1", "(1, 0) = 1", "(0, 0) = 1"]
    assert len(axes[0].figure.axes) == 3, "the empty place is removed"
    assert axes[0].get_subplotspec().get_gridspec().get_geometry() == (2, 2)
    assert len(explanation.plot(n=2)) == 2
    assert len(explanation.plot(n=99)) == 10


def test_wrong_requests_are_refused() -> None:
    explanation = explain(some_images(), target=0, selected=[20, 7])
    _, ax = pyplot.subplots()
    with pytest.raises(InputError, match="row is 3, expected 0 to 2"):
        explanation.plot(row=3)
    with pytest.raises(InputError, match=r"got row=None, n=None and an ax; for images expected a row"):
        explanation.plot(ax=ax)
    with pytest.raises(InputError, match=r"got row=0, n=3 and no ax"):
        explanation.plot(row=0, n=3)
    with pytest.raises(InputError, match="columns must be an int of at least 1"):
        image_plots.image_grid(explanation, columns=0)
    with pytest.raises(InputError, match="n must be an int of at least 1"):
        explanation.plot(n=0)


def test_nothing_is_shown_and_no_style_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyplot, "show", lambda *_, **__: pytest.fail("plt.show was called"))
    before = dict(matplotlib.rcParams)
    explanation = explain(some_images(), target=0, selected=[20, 7])
    explanation.plot()[0].figure.canvas.draw()
    explanation.plot(row=0)[0].figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before


# --- colours ---------------------------------------------------------------------------------------------


def test_bytes_and_shares_are_shown_as_they_are() -> None:
    whole = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5))
    np.testing.assert_array_equal(to_rgb(whole), whole.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(to_rgb(whole / 255), whole.transpose(0, 2, 3, 1))


def test_other_values_are_stretched_image_by_image() -> None:
    values = np.random.default_rng(0).normal(size=(2, 1, 4, 5)) * np.array([1.0, 50.0])[:, None, None, None]
    shown = to_rgb(values)
    for one, original in zip(shown, values, strict=True):
        assert (one.min(), one.max()) == (0, 255)
        share = (original[0] - original.min()) / (original.max() - original.min())
        np.testing.assert_allclose(one[..., 0], 255 * share, atol=0.5001)
    assert (to_rgb(np.full((1, 1, 2, 2), -3.0)) == 0).all(), "an even image has nothing to stretch"


def test_a_dark_image_among_bright_ones_stays_dark() -> None:
    images = np.full((2, 1, 6, 8), 200)
    images[0] = np.arange(48).reshape(6, 8) % 2
    explanation = explain(images, target=0, selected=[20, 7])
    assert explanation.plot(row=0)[0].images[0].get_array().max() == 1


def test_masks_of_labels_probabilities_and_numbers_have_their_colours() -> None:
    cases = {
        "words": np.array(["sky", "tree", "horse"])[np.arange(3 * 48).reshape(3, 6, 8) % 3],
        "shares": np.linspace(0, 1, 3 * 48).reshape(3, 6, 8),
        "numbers": np.linspace(-4, 9, 3 * 48).reshape(3, 6, 8),
    }
    kinds = {name: explain(some_images(), 0, [5], masks=masks).source.outputs.kind for name, masks in cases.items()}
    assert kinds == {"words": "categorical", "shares": "probability", "numbers": "continuous"}
    shown = {
        name: ImageView.of(explain(some_images(), 0, [5], masks=masks), 1).predicted for name, masks in cases.items()
    }
    codes = np.searchsorted(["horse", "sky", "tree"], cases["words"][1])
    np.testing.assert_array_equal(shown["words"], label_colours(3)[codes])
    np.testing.assert_array_equal(shown["shares"], number_colours(cases["shares"][1], 0.0, 1.0))
    np.testing.assert_array_equal(shown["numbers"], number_colours(cases["numbers"][1], -4.0, 9.0))
    assert len(np.unique(label_colours(10), axis=0)) == 10


def test_borders_of_labels_are_where_neighbours_differ() -> None:
    labels = np.array([[0, 0, -1], [1, 0, -1]])
    slow = set()
    framed = np.pad(labels, 1, constant_values=-1)
    for y in range(3):
        for x in range(4):
            if y < 3 and x < 3 and framed[y, x + 1] != framed[y + 1, x + 1]:
                slow.add(((x - 0.5, y - 0.5), (x + 0.5, y - 0.5)))
            if y < 2 and framed[y + 1, x] != framed[y + 1, x + 1]:
                slow.add(((x - 0.5, y - 0.5), (x - 0.5, y + 0.5)))
    assert set(borders(labels)) == slow
    assert len(borders(labels)) == len(slow) == 10


# --- in HTML ---------------------------------------------------------------------------------------------


def read_png(data: bytes) -> np.ndarray:
    return np.rint(255 * pyplot.imread(io.BytesIO(data), format="png")).astype(int)


def test_png_is_read_back_by_another_reader() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    np.testing.assert_array_equal(read_png(png(picture)), picture)


def test_html_shows_a_small_picture_of_every_row_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    black = np.zeros((2, 3, 6, 8))
    black[:, :, 5, 7] = 1.0
    explanation = explain(black, target=[0, 10], selected=[20, 7])
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    page = explanation.to_html()
    assert explanation._repr_html_() in page
    monkeypatch.undo()
    sources = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(sources) == 2
    assert not re.search(r"https?://", page)
    picture = read_png(base64.b64decode(sources[1]))
    zoom = 20
    assert picture.shape == (6 * zoom, 8 * zoom, 3)
    middle = picture[zoom // 2 :: zoom, zoom // 2 :: zoom].reshape(-1, 3)
    assert SELECTED[1] > middle[20, 1] > middle[7, 1] > 40
    assert set(np.flatnonzero(middle.any(axis=1))) == {7, 20, 47}
    corners = picture[::zoom, ::zoom].reshape(-1, 3)
    assert tuple(corners[10]) == TARGET
    assert set(np.flatnonzero((corners == TARGET).all(axis=1))) == {10}
