"""Images in, masks out: how they are read, checked, encoded and removed from."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from sointer import BlackBox
from sointer.blackbox.adapters import as_black_box
from sointer.data.images import ImageShape
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.errors import BlackBoxError, InputError, LoadError
from sointer.masking.build import make_removal, restore_removal

rng = np.random.default_rng(0)
BYTES = rng.integers(0, 256, size=(5, 3, 4, 6)).astype(np.uint8)
UNIT = rng.random((5, 2, 4, 6)).astype(np.float32)
WILD = rng.normal(size=(5, 1, 4, 6))

# --- inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "pixel_range"),
    [
        (BYTES, "bytes"),
        (BYTES.astype(np.float64), "bytes"),
        (UNIT, "unit"),
        (WILD, "any"),
        (BYTES.astype(np.int32) * 300, "any"),
        (torch.from_numpy(BYTES), "bytes"),
        (torch.from_numpy(UNIT), "unit"),
        (torch.from_numpy(UNIT).half(), "unit"),
    ],
)
def test_images_come_back_as_they_were(images, pixel_range) -> None:
    form = InputFormat.infer(images)
    form = InputFormat.from_json(json.loads(json.dumps(form.to_json())))
    _, channels, height, width = images.shape
    assert form.image == ImageShape(channels, height, width)
    assert form.pixel_range == pixel_range
    assert (form.n_features, form.n_columns) == (height * width, channels * height * width)
    encoded = form.encode(images)
    assert encoded.dtype == np.float64
    back = form.decode(encoded)
    assert type(back) is type(images)
    assert back.dtype == images.dtype
    assert back.shape == images.shape
    assert bool((back == images).all())


def test_a_feature_is_a_pixel_over_all_channels() -> None:
    form = InputFormat.infer(BYTES)
    encoded = form.encode(BYTES)
    for column, feature in enumerate(form.column_feature.tolist()):
        channel, (row, place) = column // 24, divmod(feature, 6)
        assert form.feature_names[feature] == f"({row}, {place})"
        assert np.array_equal(encoded[:, column], BYTES[:, channel, row, place])


def test_reduced_bytes_stay_bytes() -> None:
    form = InputFormat.infer(BYTES)
    assert form.decode(np.zeros((2, 72))).dtype == np.uint8
    named = InputFormat.infer(BYTES, feature_names=[f"p{i}" for i in range(24)])
    assert named.feature_names[7] == "p7"
    with pytest.raises(InputError, match="feature_names must hold 24 names, got 72"):
        InputFormat.infer(BYTES, feature_names=[f"p{i}" for i in range(72)])


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (BYTES[:, 0], r"3 dimensions .*X\[:, None\].*X\[None\]"),
        (BYTES[0], r"X\[None\]"),
        (np.zeros((5, 32, 32, 3)), r"channels come last.*X\.transpose\(0, 3, 1, 2\)"),
        (np.zeros((2, 3, 4, 5, 6)), "5 dimensions"),
        (np.zeros((0, 3, 4, 6)), "empty"),
        (np.zeros((2, 0, 4, 6)), "empty"),
        (np.full((2, 1, 4, 6), np.nan), r"48 NaN or infinite values, in rows 0, 1 and pixels '\(0, 0\)'"),
        (np.full((2, 1, 4, 6), "a"), "dtype"),
        (np.zeros((2, 1, 4, 6), dtype=complex), "dtype"),
    ],
)
def test_images_that_cannot_be_read(images, words) -> None:
    with pytest.raises(InputError, match=words):
        InputFormat.infer(images)


@pytest.mark.parametrize(
    ("fitted", "later", "words"),
    [
        (BYTES, BYTES[:, :1], "1 channels .*expected images of shape .n, 3, 4, 6. as in fit.*colour to grey"),
        (BYTES, np.zeros((2, 3, 6, 4)), "images of 6 x 4 pixels .*expected .*4, 6.*Resize"),
        (BYTES, BYTES.reshape(5, -1), "2 dimensions .*not flattened"),
        (BYTES, BYTES[:, 0], r"X\[:, None\]"),
        (BYTES, BYTES.transpose(0, 2, 3, 1)[:, :, :, :], "expected"),
        (BYTES, BYTES / 255.0, "values from .* with fractions, expected whole numbers from 0 to 255.*by 255 and round"),
        (BYTES, BYTES + 0.5, "fractions|0 to 255"),
        (BYTES, BYTES.astype(int) - 200, "expected whole numbers from 0 to 255 as in fit. Clip"),
        (UNIT, (UNIT * 255).round(), "expected values from 0 to 1 as in fit. Divide them by 255"),
        (UNIT, UNIT + 0.2, r"expected values from 0 to 1 as in fit. Clip them with X\.clip\(0, 1\)"),
        (UNIT, UNIT - 1, "Clip"),
        (np.zeros((2, 72)), BYTES, "4 dimensions .*table of 72 features was fitted"),
        (UNIT, np.full(UNIT.shape, np.inf), r"\d+ infinite values"),
    ],
)
def test_later_images_must_be_like_those_in_fit(fitted, later, words) -> None:
    with pytest.raises(InputError, match=words):
        InputFormat.infer(fitted).encode(later)


def test_what_promises_nothing_is_not_held_to_anything() -> None:
    InputFormat.infer(WILD).encode(WILD * 1000)
    InputFormat.infer(BYTES).encode(np.zeros(BYTES.shape))  # a black image is in every range
    InputFormat.infer(UNIT).encode(np.ones(UNIT.shape, dtype=int))


def test_a_saved_table_of_before_images_can_be_read() -> None:
    old = InputFormat.infer(np.zeros((2, 3))).to_json()
    assert not {"image", "pixel_range"} & set(old)  # tables are saved as they were before there were images
    assert InputFormat.from_json(old).image is None
    with pytest.raises(LoadError, match="incomplete"):
        InputFormat.from_json({**InputFormat.infer(BYTES).to_json(), "image": [1, 2]})


# --- the black box ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        lambda X: X[:, 0] > 100,
        lambda X: X[:, :1] > 100,
        lambda X: torch.from_numpy(X[:, 0] > 100),
        lambda X: (X[:, 0] > 100).tolist(),
        lambda X: [mask for mask in X[:, 0] > 100],
    ],
)
def test_masks_become_flat_tables(reply) -> None:
    box = BlackBox(reply, batch_size=2)
    table = box(BYTES)
    assert np.array_equal(table, (BYTES[:, 0] > 100).reshape(5, 24))
    assert (box.n_outputs, box.output_shape, box.n_queries) == (24, (4, 6), 5)
    assert box(BYTES[:0]).shape == (0, 24)


def test_flat_answers_about_images_stay_what_they_are() -> None:
    box = BlackBox(lambda X: X.mean(axis=(2, 3)))
    assert np.array_equal(box(BYTES), BYTES.mean(axis=(2, 3)))
    assert box.output_shape is None
    cached = BlackBox(lambda X: X[:, 0] > 100, cache=True)
    assert np.array_equal(cached(BYTES), cached(BYTES))
    assert cached.n_queries == 5


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (lambda X: np.zeros((len(X), 2, 4, 6)), r"expected masks of shape \(5, 4, 6\).*argmax\(axis=1\)"),
        (lambda X: np.zeros((len(X), 4, 6, 2)), r"argmax\(axis=3\)"),
        (lambda X: np.zeros((len(X), 4, 6, 1)), r"outputs\[\.\.\., 0\]"),
        (lambda X: np.zeros((len(X), 8, 12)), "masks of 8 x 12 pixels .*images of 4 x 6.*Resize the masks"),
        (lambda X: np.zeros((len(X), 6, 4)), "masks of 6 x 4 pixels .*images of 4 x 6"),
        (lambda X: np.zeros((1, 4, 6)), "1 masks .*for 5 images"),
        (lambda X: np.full((len(X), 4, 6), np.nan), "NaN"),
        (lambda X: np.zeros((4, 6)), "4 rows"),
    ],
)
def test_answers_that_are_no_masks(reply, words) -> None:
    with pytest.raises(BlackBoxError, match=words):
        BlackBox(reply)(BYTES)


def test_masks_for_tables_are_still_refused() -> None:
    with pytest.raises(BlackBoxError, match="Flatten the outputs"):
        BlackBox(lambda X: np.zeros((len(X), 4, 6)))(np.zeros((3, 24)))


def test_the_shape_of_answers_must_not_change() -> None:
    box = BlackBox(lambda X: X[:, 0])
    box(BYTES)
    with pytest.raises(BlackBoxError, match=r"masks of 6 x 4 pixels, expected masks of 4 x 6 pixels"):
        box(BYTES.reshape(5, 3, 6, 4))
    replies = iter([BYTES[:, 0], BYTES[:, 0].reshape(5, -1)])
    fickle = BlackBox(lambda X: next(replies), retries=0)
    fickle(BYTES)
    with pytest.raises(BlackBoxError, match="a flat table of outputs, expected masks of 4 x 6 pixels"):
        fickle(BYTES)


def test_torch_modules_are_given_float_images() -> None:
    module = torch.nn.Conv2d(3, 1, 3, padding=1)
    with torch.no_grad():
        expected = module(torch.from_numpy(BYTES).float())[:, 0].reshape(5, -1).numpy()
    for images in (BYTES, torch.from_numpy(BYTES)):
        box = as_black_box(module)
        np.testing.assert_allclose(box(images), expected, rtol=1e-5)
        assert box.output_shape == (4, 6)


# --- outputs ------------------------------------------------------------------------------------------------


def test_all_pixels_share_one_set_of_labels() -> None:
    masks = np.zeros((3, 4), dtype=int)
    masks[0, 1], masks[1, 2] = 2, 5
    outputs = Outputs.infer(masks, shape=(2, 2))
    assert outputs.names == ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]
    assert outputs.kind == "categorical"
    assert outputs.n_classes == [3] * 4
    assert outputs.constant.tolist() == [True, False, False, True]
    np.testing.assert_array_equal(outputs.encode(masks), np.searchsorted([0, 2, 5], masks))
    np.testing.assert_array_equal(outputs.decode(outputs.encode(masks)), masks)


@pytest.mark.parametrize(
    "table",
    [
        rng.random((6, 12)) < 0.5,
        rng.integers(0, 2, (6, 12)),
        rng.integers(3, 6, (6, 12)),
        rng.integers(-2, 3, (6, 12)).astype(np.int8),
        rng.choice([-1.0, 2.0, 7.0], (6, 12)),
        rng.choice(["horse", "sky", "grass"], (6, 12)),
        rng.random((6, 12)),
        rng.normal(size=(6, 12)),
        np.zeros((6, 12), dtype=int),
    ],
)
def test_masks_agree_with_plain_outputs_that_see_the_same_labels(table) -> None:
    """The slow twin: outputs without a shape, whose columns all hold every label."""
    labelled = table.dtype.kind != "f" or np.array_equal(table, np.rint(table))
    every = np.unique(table)
    taught = np.vstack([table, np.repeat(every[:, None], 12, axis=1)]) if labelled else table
    kind = Outputs.infer(table, shape=(3, 4)).kind
    masks, plain = Outputs.infer(taught, shape=(3, 4), kind=kind), Outputs.infer(taught, kind=kind)
    masks = Outputs.from_json(json.loads(json.dumps(masks.to_json())))
    assert masks.shape == (3, 4)
    assert masks.n_classes == plain.n_classes
    assert masks.seen == plain.seen
    np.testing.assert_array_equal(masks.encode(table), plain.encode(table))
    np.testing.assert_array_equal(masks.decode(masks.encode(table)), plain.decode(plain.encode(table)))
    other = np.roll(table, 1, axis=0)
    np.testing.assert_array_equal(masks.agree(table, other), plain.agree(table, other))
    np.testing.assert_array_equal(masks.difference(table, other), plain.difference(table, other))
    targets = rng.integers(12, size=6)
    for one, two in zip(masks.encode_targets(table, targets), plain.encode_targets(table, targets), strict=True):
        np.testing.assert_array_equal(one, two)


def test_few_masks_of_classes_are_classes_and_numbers_are_numbers() -> None:
    classes = rng.integers(0, 5, (2, 100))
    assert Outputs.infer(classes, shape=(10, 10)).kind == "categorical"
    assert Outputs.infer(rng.normal(size=(2, 100)), shape=(10, 10)).kind == "continuous"
    assert Outputs.infer(rng.random((2, 100)), shape=(10, 10)).kind == "probability"
    assert Outputs.infer(np.arange(200).reshape(2, 100), shape=(10, 10)).kind == "continuous"
    with pytest.raises(InputError, match=r"output_kind='binary' does not fit: output '\(0, 0\)' has 5 different"):
        Outputs.infer(classes, shape=(10, 10), kind="binary")


def test_new_labels_of_masks() -> None:
    outputs = Outputs.infer(np.array([[0, 1, 0, 0]]), shape=(2, 2))
    assert outputs.kind == "binary"
    with pytest.raises(BlackBoxError, match=r"'\(1, 0\)' has new labels 4, expected one of 0, 1"):
        outputs.encode(np.array([[0, 0, 4, 0]]))
    codes, known = outputs.encode_targets(np.array([[0, 0, 4, 1]] * 2), np.array([2, 3]))
    assert known.tolist() == [False, True]
    assert codes[1] == 1
    wider = outputs.with_new_labels(np.array([[0, 0, 4, 0]]))
    assert (wider.kind, wider.n_classes) == ("categorical", [3] * 4)
    assert wider.constant.tolist() == [True, False, False, True]
    np.testing.assert_array_equal(wider.encode(np.array([[0, 1, 4, 0]])), [[0, 1, 2, 0]])
    assert outputs.with_new_labels(np.zeros((0, 4), dtype=int)) is outputs


def test_sixteen_thousand_outputs_do_not_take_sixteen_thousand_steps(monkeypatch) -> None:
    from sointer.data.labels import Classes

    calls = []
    encode = Classes.encode
    monkeypatch.setattr(Classes, "encode", lambda self, column: calls.append(1) or encode(self, column))
    masks = rng.integers(0, 4, (20, 128 * 128)).astype(np.uint8)
    outputs = Outputs.infer(masks, shape=(128, 128))
    np.testing.assert_array_equal(outputs.encode(masks), masks)
    outputs.encode_targets(masks, np.arange(20) * 700)
    assert len(calls) == 2


def test_unsigned_and_large_labels_are_not_mistaken() -> None:
    outputs = Outputs.infer(np.array([[0, 1]], dtype=np.uint8), shape=(1, 2))
    with pytest.raises(BlackBoxError, match="new labels"):
        outputs.encode(np.array([[0, 2**64 - 1]], dtype=np.uint64))
    far = Outputs.infer(np.array([[0, 10**9]] * 3), shape=(1, 2), kind="categorical")
    np.testing.assert_array_equal(far.encode(np.array([[10**9, 0]])), [[1, 0]])
    with pytest.raises(BlackBoxError, match="new labels 5"):
        far.encode(np.array([[10**9, 5]]))


# --- removal ------------------------------------------------------------------------------------------------


def encoded(images):
    form = InputFormat.infer(images)
    return form, form.encode(images)


def test_auto_is_another_image_for_images() -> None:
    form, data = encoded(WILD)
    removal = make_removal("auto", data, form)
    assert removal.name == "marginal"
    drawn = removal.apply(data, np.zeros(data.shape, bool), rng)
    assert all((row == data).all(axis=1).any() for row in drawn)


@pytest.mark.parametrize("images", [BYTES, UNIT, WILD])
def test_blur_is_a_gaussian_of_an_eighth_of_the_height(images) -> None:
    form, data = encoded(images)
    removal = make_removal("blur", data, form)
    sigma = images.shape[2] / 8
    slow = gaussian_filter(images.astype(np.float64), sigma=(0, 0, sigma, sigma), mode="nearest")
    slow = np.rint(slow) if images.dtype == np.uint8 else slow
    keep = rng.random(data.shape) < 0.5
    made = removal.apply(data, keep, rng)
    np.testing.assert_array_equal(made[keep], data[keep])
    np.testing.assert_allclose(made[~keep], slow.reshape(data.shape)[~keep], atol=1e-9)
    assert form.decode(made).dtype == images.dtype
    alone = np.concatenate([removal.apply(data[[i]], keep[[i]], rng) for i in range(len(data))])
    np.testing.assert_array_equal(alone, made)
    metadata, arrays = removal.state()
    again = restore_removal(json.loads(json.dumps(metadata)), arrays)
    np.testing.assert_array_equal(again.apply(data, keep, rng), made)
    assert removal.references(3, rng).shape == (1, data.shape[1])


def test_what_a_blur_does_not_change_cannot_be_chosen() -> None:
    flat = np.full((1, 1, 16, 16), 0.3)
    form, data = encoded(flat)
    removal = make_removal("blur", data, form)
    assert not removal.differs(data).any()
    dotted = data.copy()
    dotted[0, 0] = 0.9
    differs = removal.differs(dotted)
    assert differs[0, 0]
    assert not differs[0, -1]  # far away from the dot


def test_a_blur_is_for_images() -> None:
    table = np.ones((3, 4))
    with pytest.raises(InputError, match="removal='blur' is for images"):
        make_removal("blur", table, InputFormat.infer(table))


def test_the_mean_image_and_given_images() -> None:
    form, data = encoded(BYTES)
    nothing = np.zeros((1, 72), bool)
    made = make_removal("mean", data, form).apply(data[:1], nothing, rng)
    np.testing.assert_array_equal(made, np.rint(data.mean(axis=0))[None])
    assert form.decode(made).dtype == np.uint8
    picture = rng.integers(0, 256, (3, 4, 6))
    for given, reference in [(picture, picture.ravel()), ([1, 2, 3], np.repeat([1, 2, 3], 24))]:
        np.testing.assert_array_equal(make_removal(given, data, form).apply(data[:1], nothing, rng), [reference])
    with pytest.raises(InputError, match=r"image of shape \(3, 4, 6\) or one value for each of 3 channels"):
        make_removal(np.zeros(24), data, form)


@pytest.mark.parametrize("spec", ["marginal", "conditional"])
def test_other_images_stand_in(spec) -> None:
    form, data = encoded(BYTES)
    made = make_removal(spec, data, form).apply(data, np.zeros(data.shape, bool), np.random.default_rng(1))
    assert all((row == data).all(axis=1).any() for row in made)


def test_a_function_is_given_images() -> None:
    form, data = encoded(UNIT)
    seen = []

    def negative(x, keep, rng):
        seen.append((x.shape, keep.shape, keep.dtype))
        assert np.array_equal(x.astype(np.float32), UNIT)
        return np.where(keep, x, 1 - x)

    removal = make_removal(negative, data, form)
    keep = rng.random(data.shape) < 0.5
    made = removal.apply(data, keep, rng)
    np.testing.assert_allclose(made, np.where(keep, data, 1 - data))
    assert seen == [(UNIT.shape, UNIT.shape, bool)]
    metadata, arrays = removal.state()
    again = restore_removal(json.loads(json.dumps(metadata)), arrays, function=negative)
    np.testing.assert_array_equal(again.apply(data, keep, rng), made)
    flat = make_removal(lambda x, keep, rng: x.reshape(len(x), -1), data, form)
    with pytest.raises(InputError, match=r"expected numbers of shape \(5, 2, 4, 6\)"):
        flat.apply(data, keep, rng)
