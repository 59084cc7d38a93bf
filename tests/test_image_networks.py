"""The networks for images and what trains them, against slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sointer import Patches, Superpixels
from sointer.config import InterpreterConfig
from sointer.convolution import UNetwork, draw_weights
from sointer.energy.image import COUPLED_WITHIN, ImageEnergy, stride_for
from sointer.groups import Groups
from sointer.inputs import InputFormat
from sointer.inputs.image import ImageShape
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.pixels import PixelUnits, distance_to
from sointer.outputs import Outputs
from sointer.training.image_masks import several_scales
from sointer.training.image_pool import ImagePool, fits_half, room_for
from sointer.training.image_steps import Batch, ImageInterpreterSteps
from sointer.training.points import Points
from sointer.training.task import Replies

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed))


def energy_for(n_classes: int, size=(4, 5), *, channels: int = 2, coupled: bool = True, **settings) -> ImageEnergy:
    shape = ImageShape(channels, *size)
    energy = ImageEnergy(shape, n_classes, (3, 4), **{"coupling_units": 3, "n_steps": 2, **settings})
    energy.initialise(seeded())
    if coupled and energy.b is not None:
        with torch.no_grad():
            energy.b.normal_(generator=seeded(1))
            energy.B.bias.normal_(generator=seeded(2))
    return energy.eval()


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


def test_strides_grow_with_the_image() -> None:
    assert [stride_for(ImageShape(1, side, 3)) for side in (1, 48, 49, 96, 97, 200)] == [1, 1, 2, 2, 4, 8]
    assert stride_for(ImageShape(1, 3, 49)) == 2


# --- the energy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_marginals_are_probabilities(n_classes) -> None:
    energy = energy_for(n_classes)
    with torch.no_grad():
        marginals = energy.log_marginals(normal(3, 40)).exp()
    assert marginals.shape == (3, n_classes, 4, 5)
    torch.testing.assert_close(marginals.sum(1), torch.ones(3, 4, 5))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_outputs_are_not_coupled_at_the_start(n_classes) -> None:
    fresh, loose = (energy_for(n_classes, coupled=False, structured=structured) for structured in (True, False))
    loose.unary.load_state_dict(fresh.unary.state_dict())
    x = normal(3, 40)
    with torch.no_grad():
        assert torch.equal(fresh.log_odds(x), loose.log_odds(x))
    assert not fresh.neighbours().any()
    assert not loose.neighbours().any()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_mean_field_against_loops(n_classes) -> None:
    """Each step: a pixel's evidence less the slope of b' softplus(B * y + o) in its own output, pixel by pixel."""
    energy = energy_for(n_classes)
    x = normal(2, 40)
    with torch.no_grad():
        unary = energy.unary(energy.as_maps(x)).double().numpy()
        found = energy.log_odds(x).numpy()
    kernel, offset, b = (part.detach().double().numpy() for part in (energy.B.weight, energy.B.bias, energy.b))
    height, width, reach = 4, 5, COUPLED_WITHIN
    places = [(r, c) for r in range(height) for c in range(width)]
    for i in range(2):
        logits = unary[i].copy()
        for _ in range(energy.n_steps):
            y = 1 / (1 + np.exp(-logits)) if n_classes == 2 else np.exp(logits) / np.exp(logits).sum(0)
            slope = np.zeros_like(logits)
            for unit in range(len(b)):
                for r, c in places:
                    near = [(p, q) for p, q in places if abs(p - r) <= reach and abs(q - c) <= reach]
                    pull = offset[unit] + sum(
                        kernel[unit, m, p - r + reach, q - c + reach] * y[m, p, q]
                        for m in range(len(y))
                        for p, q in near
                    )
                    for m in range(len(y)):
                        for p, q in near:
                            weight = kernel[unit, m, p - r + reach, q - c + reach]
                            slope[m, p, q] += b[unit] / (1 + np.exp(-pull)) * weight
            logits = unary[i] - slope
        np.testing.assert_allclose(found[i], logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_is_read_off_the_marginals(n_classes) -> None:
    energy = energy_for(n_classes)
    x, codes = normal(3, 40), torch.randint(n_classes, (3, 20), generator=seeded(5))
    region = torch.zeros(3, 20)
    region[0, 7], region[1, 3:9], region[2] = 1, 1, 1
    with torch.no_grad():
        log_p = energy.log_marginals(x).flatten(2).numpy()
        of_code = np.array([[log_p[i, codes[i, p], p] for p in range(20)] for i in range(3)])
        np.testing.assert_allclose(energy.loss(x, codes), -of_code.mean(1), rtol=1e-5)
        assert np.array_equal(energy.predict(x).numpy(), log_p.argmax(1))
        wanted = [of_code[0, 7], of_code[1, 3:9].mean(), of_code[2].mean()]
        np.testing.assert_allclose(energy.region_log_likelihood(x, region, codes), wanted, rtol=1e-5)


def test_channels_are_scaled_each_on_its_own() -> None:
    energy = energy_for(2, channels=3)
    rows = np.random.default_rng(0).normal([[3.0], [-50.0], [0.2]], [[1.0], [9.0], [0.0]], size=(30, 3, 20))
    energy.scale_to(rows.reshape(30, -1))
    maps = energy.as_maps(torch.from_numpy(rows.reshape(30, -1)).float())
    assert torch.isfinite(maps).all(), "a channel that never changes must not be divided by nothing"
    torch.testing.assert_close(maps[:, :2].mean((0, 2, 3)), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(maps[:, :2].std((0, 2, 3), correction=0), torch.ones(2), atol=1e-4, rtol=0)


# --- units and distances -------------------------------------------------------------------------------------


def units_of(kind: str, n_rows: int, size=(6, 5)) -> PixelUnits:
    images = np.random.default_rng(3).random((n_rows, 1, *size))
    form = InputFormat.infer(images)
    spec = {"pixels": None, "patches": Patches(2), "superpixels": Superpixels(7)}[kind]
    groups = Groups.build(spec, form.feature_names, form.column_feature, form)
    return PixelUnits.of(groups.bind(form.encode(images, caller="fit")), n_rows)


@pytest.mark.parametrize("kind", ["pixels", "patches", "superpixels"])
def test_means_and_spread_of_units_against_loops(kind) -> None:
    units, scores = units_of(kind, 4), normal(4, 30)
    of_pixel = torch.arange(30).repeat(4, 1) if units.of_pixel is None else units.of_pixel
    means = units.means(scores)
    spread = units.spread(torch.arange(4.0 * units.n_units).view(4, -1))
    assert means.shape == (4, units.n_units)
    for i in range(4):
        for unit in range(units.n_units):
            inside = [float(scores[i, p]) for p in range(30) if of_pixel[i, p] == unit]
            wanted = sum(inside) / len(inside) if inside else -math.inf
            assert float(means[i, unit]) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
        for p in range(30):
            assert spread[i, p] == i * units.n_units + of_pixel[i, p]


def test_units_that_an_image_does_not_have_get_no_score() -> None:
    units = PixelUnits(torch.tensor([[0, 0, 2], [1, 1, 1]]), 3)
    assert units.means(torch.ones(2, 3)).tolist() == [[1, -math.inf, 1], [-math.inf, 1, -math.inf]]


def test_distances_against_brute_force() -> None:
    rng, (height, width) = np.random.default_rng(0), (5, 4)
    region = rng.random((12, 20)) < 0.2
    region[:4] = np.eye(20, dtype=bool)[[0, 7, 12, 19]]
    region[4] = region[5] = np.isin(np.arange(20), [3, 16])
    region[6] = True
    region[~region.any(1), 0] = True
    found = distance_to(region, (height, width))
    for i in range(12):
        inside = [divmod(p, width) for p in np.flatnonzero(region[i])]
        for p in range(20):
            nearest = min(math.dist(divmod(p, width), q) for q in inside)
            assert found[i, p] == pytest.approx(nearest, abs=1e-5)


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
    assert 0.25 < np.quantile(share, 0.5) < 0.5, "half of the shares are uniform, half lean to few"
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
    some = keep[(share > 0.3) & (share < 0.7)]
    alike = (some[:, :, 1:] == some[:, :, :-1]).mean((1, 2))
    assert (alike < 0.6).sum() >= 3
    assert (alike > 0.9).sum() >= 3


# --- the pool ------------------------------------------------------------------------------------------------


def replies(raw: np.ndarray, seed: int = 0) -> Replies:
    points = np.random.default_rng(seed).integers(256, size=(len(raw), 8)).astype(float)
    return Replies(Points.of(points, np.zeros(8)), raw)


def test_the_pool_holds_what_it_has_room_for() -> None:
    rng = np.random.default_rng(0)
    raw = rng.integers(3, size=(7, 4))
    raw[0, :3] = [0, 1, 2]
    outputs = Outputs.infer(raw, shape=(2, 2))
    pool = ImagePool(outputs, 8, 10, half=True)
    assert pool.add(replies(raw)) == 7
    with_new = raw.copy()
    with_new[1, 2] = 9
    assert pool.add(replies(with_new[:2], seed=1)) == 1, "a label never seen cannot be learned from"
    assert pool.add(replies(raw, seed=2)) == 2
    assert pool.add(replies(raw, seed=3)) == 0
    assert len(pool) == 10
    points, codes = pool.take(torch.tensor([7, 0, 9]))
    assert points.dtype == torch.float32
    wanted = [replies(raw[:2], 1), replies(raw, 0), replies(raw, 2)]
    for found, (part, row) in zip(points, zip(wanted, (0, 0, 1), strict=True), strict=True):
        assert torch.equal(found, part.points.dense()[row]), "half precision holds bytes exactly"
    assert codes.tolist() == outputs.encode(raw[[0, 0, 1]]).tolist()
    assert not pool.held_out.any()


def test_half_precision_is_for_numbers_that_survive_it() -> None:
    noise = np.random.default_rng(0).random((5, 9))
    assert fits_half(noise)
    assert fits_half(np.rint(255 * noise))
    assert fits_half((noise - 0.5) / 0.3)
    assert not fits_half(1e5 * noise)
    assert not fits_half(3e4 + noise), "what tells these images apart would be rounded away"
    assert fits_half(np.zeros((5, 9)))
    assert room_for(3 * 128 * 128, 128 * 128) > 5_000


# --- choosing ------------------------------------------------------------------------------------------------


def steps_for(interpreter: ImageInterpreter | None = None, **settings) -> ImageInterpreterSteps:
    config = InterpreterConfig(**settings).resolve("default", "images")
    interpreter = ImageInterpreter(energy_for(2), (3, 4)).initialise(seeded(1)) if interpreter is None else interpreter
    return ImageInterpreterSteps(interpreter, config, 10, seeded(7), batch_size=config.batch_size)


def test_few_images_at_once_make_shorter_steps() -> None:
    config, interpreter = InterpreterConfig().resolve("default", "images"), ImageInterpreter(energy_for(2), (3, 4))
    n = config.batch_size
    rates = [
        ImageInterpreterSteps(interpreter, config, 10, seeded(7), batch_size=size).optimiser.groups[0].rate
        for size in (n // 4, n, 2 * n)
    ]
    assert rates == pytest.approx([config.learning_rate / 2, config.learning_rate, config.learning_rate])


@pytest.mark.parametrize("temperature", [0.01, 0.3, 3.0])
def test_as_many_units_are_chosen_as_asked_for(temperature) -> None:
    scores = normal(40, 20).requires_grad_(True)
    sizes = torch.arange(40).remainder(20).add(1).unsqueeze(1)  # from one to all
    share = steps_for(temperature=temperature).select(scores, sizes)
    assert set(share.unique().tolist()) <= {0.0, 1.0}
    assert share.sum(1).tolist() == sizes.squeeze(1).tolist()
    (share * normal(40, 20, seed=1)).sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad.abs().sum() > 0


@pytest.mark.parametrize("temperature", [0.01, 0.3, 3.0])
def test_units_that_may_not_be_chosen_never_are(temperature) -> None:
    scores = normal(30, 20).requires_grad_(True)
    allowed = torch.rand(30, 20, generator=seeded(3)) < torch.linspace(0, 1, 30).unsqueeze(1)
    sizes = torch.full((30, 1), 6)
    share = steps_for(temperature=temperature).select(scores.masked_fill(~allowed, -math.inf), sizes)
    assert not (share.detach()[~allowed] > 0).any()
    assert share.sum(1).tolist() == allowed.sum(1).clamp(max=6).tolist()
    (share * normal(30, 20, seed=1)).sum().backward()
    assert torch.isfinite(scores.grad).all()


def test_a_single_unit_can_be_chosen() -> None:
    assert steps_for().select(torch.zeros(3, 1), torch.ones(3, 1, dtype=torch.long)).tolist() == [[1], [1], [1]]


def test_high_scores_are_chosen_where_noise_is_small() -> None:
    scores = normal(20, 20)
    share = steps_for(temperature=1e-4).select(scores, torch.full((20, 1), 5))
    assert torch.equal(share > 0.5, scores >= scores.topk(5, dim=1).values[:, -1:])


def batch_of(units: PixelUnits, n: int, allowed: torch.Tensor | None = None) -> Batch:
    region = np.zeros((n, 20), dtype=bool)
    region[np.arange(n), np.arange(n)] = True
    return Batch(
        index=np.arange(n),
        x=normal(n, 40),
        absent=torch.zeros(n, 40),
        region=torch.from_numpy(region).float(),
        codes=torch.randint(2, (n, 20), generator=seeded(4)),
        distance=torch.from_numpy(distance_to(region, (4, 5))),
        units=units,
        allowed=torch.ones(n, units.n_units, dtype=torch.bool) if allowed is None else allowed,
        sizes=torch.full((n, 1), 2),
    )


def test_images_are_reduced_unit_by_unit_in_all_channels() -> None:
    units = PixelUnits(torch.arange(20).repeat(3, 1) // 5, 4)
    batch = batch_of(units, 3)
    kept = batch.reduced(torch.tensor([[1.0, 0, 0, 1]] * 3)).view(3, 2, 4, 5)
    images = batch.x.view(3, 2, 4, 5)
    assert torch.equal(kept[:, :, [0, 3]], images[:, :, [0, 3]])
    assert not kept[:, :, [1, 2]].any()


def test_a_step_trains_the_interpreter_and_leaves_the_energy_alone() -> None:
    energy = energy_for(2).requires_grad_(False)
    interpreter = ImageInterpreter(energy, (3, 4)).initialise(seeded(1))
    before = {name: tensor.clone() for name, tensor in interpreter.state_dict().items()}
    allowed = torch.ones(6, 20, dtype=torch.bool)
    allowed[0] = False  # an image that equals what stands in for it
    steps = steps_for(interpreter)
    for _ in range(3):
        assert math.isfinite(steps.step(batch_of(PixelUnits(None, 20), 6, allowed)))
    for name, tensor in interpreter.state_dict().items():
        assert torch.isfinite(tensor).all(), name
        assert name.startswith("energy.") == torch.equal(tensor, before[name]) or "num_batches" in name, name


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_of_an_image_hang_on_its_target_and_the_value(n_classes) -> None:
    energy = energy_for(n_classes)
    interpreter = ImageInterpreter(energy, (3, 4)).initialise(seeded(1)).eval()
    x, absent = normal(1, 40).repeat(3, 1), torch.zeros(3, 40)
    region = np.zeros((3, 20), dtype=bool)
    region[[0, 1, 2], [3, 3, 16]] = True
    codes = torch.zeros(3, 20, dtype=torch.long)
    codes[1] = 1
    with torch.no_grad():
        scores = interpreter(
            x, absent, torch.from_numpy(region).float(), codes, torch.from_numpy(distance_to(region, (4, 5)))
        )
    assert scores.shape == (3, 20)
    assert torch.isfinite(scores).all()
    assert not torch.allclose(scores[0], scores[1])
    assert not torch.allclose(scores[0], scores[2])
