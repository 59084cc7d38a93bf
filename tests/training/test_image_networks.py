"""The networks for images and what trains them, against slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sointer import Patches, Superpixels
from sointer._support.unet import UNetwork, draw_weights
from sointer.data.images import ImageShape
from sointer.data.inputs import InputFormat
from sointer.energy.image import Evidence, ImageEnergy, cell_side, follows
from sointer.interpreter.image import ImageInterpreter, PixelUnits, sufficient
from sointer.masking.build import make_groups
from sointer.training.image_swaps import several_scales
from sointer.training.optim import warm_cosine

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed))


def energy_for(n_classes: int, size=(4, 5), *, channels: int = 2) -> ImageEnergy:
    energy = ImageEnergy(ImageShape(channels, *size), n_classes, (3, 4), n_keys=3, n_values=2)
    return energy.initialise(seeded()).requires_grad_(False).eval()


# --- U-Nets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (5, 1), (9, 7), (8, 8), (12, 3)])
@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("widths", [(3,), (3, 4, 5)])
def test_maps_keep_their_size(size, stride, widths) -> None:
    network = UNetwork(2, 3, widths, stride=stride)
    draw_weights(network, seeded())
    with torch.no_grad():
        assert network.eval()(normal(2, 2, *size)).shape == (2, 3, *size)


@pytest.mark.parametrize("stride", [1, 2])
def test_folding_does_not_change_the_function(stride) -> None:
    network = UNetwork(2, 2, (4, 6, 8), stride=stride)
    draw_weights(network, seeded())
    for seed in range(5):  # so that the normalisations have something to normalise by
        network.train()(3 * normal(4, 2, 9, 7, seed=seed) + 1)
    maps = normal(3, 2, 9, 7, seed=9)
    with torch.no_grad():
        before = network.eval()(maps)
        after = network.folded()(maps)
        again = network(maps)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert torch.equal(before, again), "folding changed the network itself"
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in network.folded().modules())


def test_the_same_generator_draws_the_same_weights() -> None:
    def weights(seed: int) -> torch.Tensor:
        network = UNetwork(1, 1, (3, 4))
        draw_weights(network, seeded(seed))
        return torch.cat([p.flatten() for p in network.parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_cells_grow_with_the_image() -> None:
    assert [cell_side(ImageShape(1, side, 3)) for side in (1, 40, 41, 80, 81, 256)] == [1, 1, 2, 2, 3, 7]
    assert cell_side(ImageShape(1, 3, 41)) == 2


# --- the energy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(4, 5), (45, 41)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_evidence_of_targets(n_classes, size) -> None:
    energy = energy_for(n_classes, size)
    n_pixels = size[0] * size[1]
    maps = energy.maps(normal(3, 2 * n_pixels))
    targets = torch.tensor([0, 7, n_pixels - 1])
    evidence = energy.evidence(maps, targets)
    assert evidence.attention.shape == evidence.value.shape == (3, 3, energy.n_cells)
    torch.testing.assert_close(evidence.attention.sum(2), torch.ones(3, 3))
    assert (evidence.strength > 0).all()
    own = energy.evidence(maps, targets.repeat(3, 1))
    for a, b in zip(evidence, own, strict=True):
        torch.testing.assert_close(a, b)
    assert energy.predict(maps).shape == (3, n_pixels)
    assert int(energy.predict(maps).max()) < n_classes


def test_attention_by_place_against_loops() -> None:
    energy = energy_for(2, (4, 5))
    with torch.no_grad():
        energy.near.normal_(generator=seeded(4))
        energy.anywhere.normal_(generator=seeded(5))
        found = energy._by_place(torch.arange(20))
        seen = (energy.places @ energy.from_place) @ (energy.places @ energy.to_place).T
    near = energy.near.detach().view(7, 9)
    for target in range(20):
        for cell in range(20):
            (row, column), (down, right) = divmod(target, 5), divmod(cell, 5)
            wanted = near[down - row + 3, right - column + 4] + energy.anywhere[cell] + seen[target, cell]
            assert float(found[target, cell]) == pytest.approx(float(wanted), rel=1e-4, abs=1e-5)


def random_evidence(n_images: int, n_targets: int, n_cells: int) -> Evidence:
    shape = n_images, n_targets, n_cells
    return Evidence(normal(*shape).softmax(2), normal(*shape), normal(n_images, n_targets).exp())


def test_which_image_a_mixture_follows_against_loops() -> None:
    evidence, share = random_evidence(3, 4, 6), torch.rand(5, 6, generator=seeded())
    signed = evidence.signed
    first, second = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([1, 2, 0, 2, 0])
    found = follows(evidence, first, second, share)
    for mixture in range(5):
        for target in range(4):
            wanted = sum(
                float(signed[first[mixture], target, cell] * share[mixture, cell])
                - float(signed[second[mixture], target, cell] * (1 - share[mixture, cell]))
                for cell in range(6)
            )
            assert float(found[mixture, target]) == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_swapping_both_images_and_their_shares_swaps_the_odds() -> None:
    evidence, share = random_evidence(2, 4, 6), torch.rand(5, 6, generator=seeded())
    first = torch.tensor([0, 1, 0, 1, 0])
    odds, swapped = follows(evidence, first, 1 - first, share), follows(evidence, 1 - first, first, 1 - share)
    torch.testing.assert_close(odds, -swapped, rtol=1e-4, atol=1e-5)


def test_shares_of_cells_are_means_of_their_pixels() -> None:
    energy = energy_for(2, (45, 41))
    kept = torch.rand(2, 45 * 41, generator=seeded()) < 0.5
    shares = energy.cell_shares(kept).view(2, 23, 21)
    pixels = kept.view(2, 45, 41).float()
    for row, column in ((0, 0), (5, 7), (22, 20), (22, 3)):
        block = pixels[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        torch.testing.assert_close(shares[:, row, column], block.mean((1, 2)))


def test_channels_are_scaled_each_on_its_own() -> None:
    energy = energy_for(2, channels=3)
    rows = np.random.default_rng(0).normal([[3.0], [-50.0], [0.2]], [[1.0], [9.0], [0.0]], size=(30, 3, 20))
    energy.scale_to(rows.reshape(30, -1))
    maps = energy.maps(torch.from_numpy(rows.reshape(30, -1)).float())
    colours = maps.value[:, energy.n_values : energy.n_values + 3]
    assert torch.isfinite(colours).all(), "a channel that never changes must not be divided by nothing"
    torch.testing.assert_close(colours[:, :2].mean((0, 2)), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(colours[:, :2].std((0, 2), correction=0), torch.ones(2), atol=1e-4, rtol=0)


# --- the interpreter -----------------------------------------------------------------------------------------


def evidence_of(attention: torch.Tensor, value: torch.Tensor) -> Evidence:
    return Evidence(attention[None, None], value[None, None], torch.ones(1, 1))


def test_a_cell_against_the_output_matters_amid_others_for_it_and_a_place_against_it_does_not() -> None:
    interpreter = ImageInterpreter(energy_for(2, (16, 16)))
    attention, value = torch.zeros(16, 16), torch.ones(16, 16)
    attention[2:5, 2:5] = attention[10:13, 10:13] = 1 / 18
    value[3, 3] = -1.0
    value[10:13, 10:13] = -1.0
    relevance = interpreter.relevance(evidence_of(attention.flatten(), value.flatten())).view(16, 16)
    assert (relevance[2:5, 2:5] > 0).all()
    assert not relevance[10:13, 10:13].any()
    assert not relevance[attention == 0].any()


def test_where_nothing_speaks_for_the_output_relevance_is_attention() -> None:
    interpreter = ImageInterpreter(energy_for(2, (8, 8)))
    attention = torch.rand(64, generator=seeded())
    torch.testing.assert_close(interpreter.relevance(evidence_of(attention, -torch.ones(64)))[0, 0], attention)


@pytest.mark.parametrize("size", [(6, 5), (45, 41)])
@pytest.mark.parametrize("smooth", [False, True])
def test_relevance_is_a_share_of_the_decision(smooth, size) -> None:
    interpreter = ImageInterpreter(energy_for(2, size)).eval()
    n_pixels = size[0] * size[1]
    with torch.no_grad():
        found = interpreter(interpreter.energy.maps(normal(3, 2 * n_pixels)), torch.tensor([[1], [2], [3]]), smooth)
        pixels = interpreter.of_pixels(found.relevance)
    assert (found.relevance >= 0).all()
    torch.testing.assert_close(found.relevance.sum(1), torch.ones(3))
    assert pixels.shape == (3, n_pixels)
    torch.testing.assert_close(pixels.sum(1), torch.ones(3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_the_fewest_units_that_hold_a_share_against_a_loop(share) -> None:
    amounts = torch.rand(20, 9, generator=seeded())
    for row, kept in zip(amounts, sufficient(amounts, share), strict=True):
        order, held, wanted = row.argsort(descending=True), 0.0, set()
        for unit in order.tolist():
            if held < share * float(row.sum()) - 1e-7:
                wanted.add(unit)
            held += float(row[unit])
        assert set(kept.nonzero().flatten().tolist()) == wanted


def test_folding_does_not_change_what_is_found() -> None:
    interpreter = ImageInterpreter(energy_for(2, (9, 7)))
    interpreter.is_smooth.fill_(True)
    maps = [one.energy.maps(normal(3, 126)) for one in (interpreter, interpreter.folded())]
    targets = torch.tensor([[1], [2], [3]])
    found = [one(m, targets) for one, m in zip((interpreter, interpreter.folded()), maps, strict=True)]
    torch.testing.assert_close(found[0].relevance, found[1].relevance, rtol=1e-4, atol=1e-5)
    assert any(isinstance(layer, torch.nn.BatchNorm2d) for layer in interpreter.modules())


# --- units -------------------------------------------------------------------------------------


def units_of(kind: str, n_rows: int, size=(6, 5)) -> PixelUnits:
    images = np.random.default_rng(3).random((n_rows, 1, *size))
    form = InputFormat.infer(images)
    spec = {"pixels": None, "patches": Patches(2), "superpixels": Superpixels(7)}[kind]
    groups = make_groups(spec, form.feature_names, form.column_feature, form)
    return PixelUnits.of(groups.bind(form.encode(images, caller="fit")), n_rows)


@pytest.mark.parametrize("kind", ["pixels", "patches", "superpixels"])
def test_means_and_spread_of_units_against_loops(kind) -> None:
    units, scores = units_of(kind, 4), normal(4, 30)
    of_pixel = torch.arange(30).repeat(4, 1) if units.of_pixel is None else units.of_pixel
    means, sums = units.means(scores), units.sums(scores)
    spread = units.spread(torch.arange(4.0 * units.n_units).view(4, -1))
    assert means.shape == (4, units.n_units)
    for i in range(4):
        for unit in range(units.n_units):
            inside = [float(scores[i, p]) for p in range(30) if of_pixel[i, p] == unit]
            wanted = sum(inside) / len(inside) if inside else -math.inf
            assert float(means[i, unit]) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
            total = sum(inside) if inside else -math.inf
            assert float(sums[i, unit]) == pytest.approx(total, rel=1e-4, abs=1e-5)
        for p in range(30):
            assert spread[i, p] == i * units.n_units + of_pixel[i, p]


def test_units_that_an_image_does_not_have_get_no_score() -> None:
    units = PixelUnits(torch.tensor([[0, 0, 2], [1, 1, 1]]), 3)
    assert units.means(torch.ones(2, 3)).tolist() == [[1, -math.inf, 1], [-math.inf, 1, -math.inf]]


# --- random masks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pixels", "patches", "superpixels"])
def test_random_masks_are_of_all_sizes_and_of_units_that_there_are(kind) -> None:
    n = 300
    units = units_of(kind, 4)
    chosen = np.arange(n) % 4
    many = PixelUnits(None if units.of_pixel is None else units.of_pixel[chosen], units.n_units)
    keep = several_scales(many, (6, 5), n, np.random.default_rng(0))
    assert keep.shape == (n, units.n_units)
    assert keep.dtype == bool
    there = np.isfinite(many.means(torch.zeros(n, 30)).numpy())
    assert not (keep & ~there).any()
    share = keep.sum(1) / there.sum(1)
    assert share.min() == 0
    assert share.max() == 1
    assert 0.4 < np.quantile(share, 0.5) < 0.6
    assert np.histogram(share, bins=4, range=(0, 1))[0].min() > n / 20


@pytest.mark.parametrize("size", [(1, 5), (1, 1), (9, 7), (64, 3)])
def test_random_masks_of_odd_sizes(size) -> None:
    n_pixels = size[0] * size[1]
    keep = several_scales(PixelUnits(None, n_pixels), size, 40, np.random.default_rng(0))
    assert keep.shape == (40, n_pixels)
    assert 0 < keep.mean() < 1


def test_random_masks_are_of_several_scales() -> None:
    """In some, a pixel says nothing about the next; in others, neighbours nearly always go together."""
    keep = several_scales(PixelUnits(None, 1024), (32, 32), 400, np.random.default_rng(0)).reshape(400, 32, 32)
    share = keep.mean((1, 2))
    subset = keep[(share > 0.3) & (share < 0.7)]
    alike = (subset[:, :, 1:] == subset[:, :, :-1]).mean((1, 2))
    assert (alike < 0.6).sum() >= 3
    assert (alike > 0.9).sum() >= 3


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [warm_cosine(i, 100) for i in range(100)]
    assert max(rates) == pytest.approx(1.0)
    assert rates[0] < 0.2
    assert rates[-1] < 0.05
    assert all(0 < warm_cosine(i, n) <= 1 for n in (1, 2, 3) for i in range(n))
