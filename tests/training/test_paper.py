"""The paper's networks for images against twins written from section 3.3, and the recipe that trains them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from sointer import SOInter
from sointer.config import EnergyConfig, InterpreterConfig, TrainingConfig
from sointer.data.images import ImageShape
from sointer.energy import likelihood as losses
from sointer.energy import paper
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import SideBySideEnergies
from sointer.energy.paper import PaperImageEnergy, paper_image_energy
from sointer.energy.space import OutputSpace
from sointer.errors import InputError
from sointer.interpreter.paper import PaperImageInterpreter, n_weights

SMALL = ImageShape(channels=2, height=6, width=5)
EIGHT = ImageShape(channels=1, height=8, width=8)
QUICK = {
    "training": TrainingConfig(n_rounds=1, n_pretraining_steps=2),
    "energy": EnergyConfig(batch_size=8),
    "interpreter": InterpreterConfig(batch_size=8),
}

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")


def masks(image: ImageShape, n_classes: int) -> OutputSpace:
    return OutputSpace((n_classes,) * image.n_pixels)


@torch.random.fork_rng(devices=[])
def small_energy(n_classes: int = 2, pixel: int | None = None) -> PaperImageEnergy:
    torch.manual_seed(0)
    space = masks(SMALL, n_classes) if pixel is None else OutputSpace((n_classes,))
    return PaperImageEnergy(SMALL, space, pixel).requires_grad_(False)


@torch.random.fork_rng(devices=[])
def small_interpreter(targets: list[int], n_units: int = 30) -> PaperImageInterpreter:
    torch.manual_seed(0)
    return PaperImageInterpreter(SMALL, n_units, targets).requires_grad_(False)


def random_rows(n: int, n_columns: int, seed: int = 0) -> Tensor:
    return torch.rand(n, n_columns, generator=torch.Generator().manual_seed(seed))


def random_codes(n: int, space: OutputSpace, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(space.n_classes[0], (n, space.n_outputs), generator=generator)


# --- slow twins, from the text of section 3.3 -------------------------------------------------------------


def convolve(picture: np.ndarray, weight: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """A 5x5 convolution at every second place, zeros outside the picture, then ReLU: by loops."""
    _, height, width = picture.shape
    result = np.zeros((len(weight), (height + 1) // 2, (width + 1) // 2))
    for r, c in np.ndindex(*result.shape[1:]):
        total = offset.copy()
        for i, j in np.ndindex(5, 5):
            row, column = 2 * r + i - 2, 2 * c + j - 2
            if 0 <= row < height and 0 <= column < width:
                total = total + weight[:, :, i, j] @ picture[:, row, column]
        result[:, r, c] = np.maximum(total, 0)
    return result


def through(layers: list[tuple[np.ndarray, np.ndarray]], picture: np.ndarray) -> np.ndarray:
    """Three convolutions, then fully connected layers, all with ReLU but the last."""
    for weight, offset in layers[:3]:
        picture = convolve(picture, weight, offset)
    values = picture.reshape(-1)
    for number, (weight, offset) in enumerate(layers[3:]):
        values = weight @ values + offset
        if number < len(layers) - 4:
            values = np.maximum(values, 0)
    return values


def layers_of(network: torch.nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    numbers = [p.double().numpy() for p in network.parameters()]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def mask_channels(codes: np.ndarray, image: ImageShape, n_classes: int) -> np.ndarray:
    """Yes or no as one channel; classes as one channel each."""
    channels = np.zeros((1 if n_classes == 2 else n_classes, image.height, image.width))
    for pixel, code in enumerate(codes):
        row, column = divmod(pixel, image.width)
        if n_classes == 2:
            channels[0, row, column] = code
        else:
            channels[code, row, column] = 1
    return channels


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_energy_equals_its_twin(n_classes: int) -> None:
    energy = small_energy(n_classes)
    x, codes = random_rows(3, SMALL.n_columns), random_codes(3, energy.space)
    expected = []
    for row, mask in zip(x.double().numpy(), codes.numpy(), strict=True):
        picture = np.concatenate([row.reshape(2, 6, 5), mask_channels(mask, SMALL, n_classes)])
        expected.append(through(layers_of(energy), picture)[0])
    assert energy(x, energy.space.encode(codes)).tolist() == pytest.approx(expected, abs=1e-7)
    assert np.ptp(expected) > 1e-4


@torch.random.fork_rng(devices=[])
def test_the_energy_has_the_layers_of_the_paper() -> None:
    image = ImageShape(3, 32, 32)
    shapes = [tuple(p.shape) for p in PaperImageEnergy(image, masks(image, 2)).parameters() if p.ndim > 1]
    assert shapes == [(64, 4, 5, 5), (128, 64, 5, 5), (128, 128, 5, 5), (400, 2048), (200, 400), (1, 200)]


def test_the_interpreter_equals_its_twin() -> None:
    interpreter = small_interpreter([7, 3], n_units=4)
    x = random_rows(2, SMALL.n_columns)
    for place, target in enumerate([7, 3]):
        layers = layers_of(interpreter.networks[place])
        assert [len(weight) for weight, _ in layers] == [64, 256, 512, 60, 60, 4]
        expected = np.array([through(layers, row.reshape(2, 6, 5)) for row in x.double().numpy()])
        np.testing.assert_allclose(interpreter.scores_for(x, target), expected, atol=1e-6)


def test_each_row_is_scored_by_the_network_of_its_target() -> None:
    interpreter, x = small_interpreter([7, 3]), random_rows(3, SMALL.n_columns)
    scores = interpreter(x, torch.tensor([3, 7, 3]))
    assert torch.equal(scores[0], interpreter.scores_for(x, 3)[0])
    assert torch.equal(scores[1], interpreter.scores_for(x, 7)[1])
    assert not torch.allclose(interpreter.scores_for(x, 3), interpreter.scores_for(x, 7))
    # Explainers fill up their last block with rows for target 0, whatever was fitted.
    padded = interpreter(x, torch.tensor([3, 0, 7]))
    assert torch.equal(padded[0], scores[0])
    assert padded[1].isnan().all()
    assert not padded[2].isnan().any()


def test_bytes_and_shares_of_bytes_are_the_same_to_the_networks() -> None:
    energy, interpreter = small_energy(), small_interpreter([0])
    x, y = random_rows(2, SMALL.n_columns), random_rows(2, SMALL.n_pixels, seed=1)
    before, scores = energy(x, y), interpreter.scores_for(x, 0)
    energy.scale.fill_(1 / 255)
    interpreter.scale.fill_(1 / 255)
    torch.testing.assert_close(energy(x * 255, y), before)
    torch.testing.assert_close(interpreter.scores_for(x * 255, 0), scores)
    assert {"scale"} <= energy.state_dict().keys() & interpreter.state_dict().keys()


# --- dropout ----------------------------------------------------------------------------------------------


def test_units_are_dropped_only_when_a_generator_says_which() -> None:
    energy = small_energy().train()
    x, y = random_rows(4, SMALL.n_columns), random_rows(4, SMALL.n_pixels, seed=1)

    def dropped(seed: int) -> Tensor:
        return energy(x, y, torch.Generator().manual_seed(seed))

    assert torch.equal(energy(x, y), energy(x, y))
    assert torch.equal(dropped(0), dropped(0))
    assert not torch.allclose(dropped(0), dropped(1))
    assert not torch.allclose(dropped(0), energy(x, y))


def test_a_quarter_of_the_units_is_dropped_and_the_rest_makes_up_for_it() -> None:
    energy = small_energy()
    for parameter in energy.parameters():
        parameter.zero_()
    # 400 units that are all 1, then the first of 200 units takes their mean.
    energy.first.bias.fill_(1.0)
    energy.second.weight[0].fill_(1 / 400)
    energy.last.weight[0, 0] = 1.0
    x, y = torch.zeros(500, SMALL.n_columns), torch.zeros(500, SMALL.n_pixels)
    values = energy(x, y, torch.Generator().manual_seed(0))
    n_kept = values * 0.75 * 400
    torch.testing.assert_close(n_kept, n_kept.round(), atol=1e-3, rtol=0)
    assert n_kept.mean().item() == pytest.approx(300, abs=2)
    assert n_kept.std().item() == pytest.approx((400 * 0.25 * 0.75) ** 0.5, rel=0.15)
    assert values.mean().item() == pytest.approx(energy(x, y).mean().item(), abs=0.01)


# --- one output alone, and what is refused ----------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_energy_of_one_pixel_sees_a_mask_that_is_empty_elsewhere(n_classes: int) -> None:
    alone, whole = small_energy(n_classes, pixel=11), small_energy(n_classes)
    x, codes = random_rows(4, SMALL.n_columns), random_codes(4, alone.space, seed=2)
    width = whole.n_channels
    y = torch.zeros(4, SMALL.n_pixels * width)
    y[:, 11 * width : 12 * width] = alone.space.encode(codes)
    assert torch.equal(alone(x, alone.space.encode(codes)), whole(x, y))


def test_energies_of_single_pixels_stand_side_by_side() -> None:
    alone = small_energy(2, pixel=11)
    both = SideBySideEnergies(masks(SMALL, 2), {11: alone})
    x = random_rows(3, SMALL.n_columns)
    unary = both.unary(x)
    difference = alone(x, torch.ones(3, 1)) - alone(x, torch.zeros(3, 1))
    torch.testing.assert_close(unary[:, 11], difference)
    assert (unary != 0).sum() == 3


@pytest.mark.parametrize(
    "space",
    [
        OutputSpace((2,) * 29),
        OutputSpace((2,) * 29 + (3,)),
    ],
)
def test_masks_that_do_not_fit_the_image_are_refused(space: OutputSpace) -> None:
    with pytest.raises(InputError, match=r"6x5 pixels needs 30 discrete.*preset='default'"):
        PaperImageEnergy(SMALL, space)


@torch.random.fork_rng(devices=[])
@pytest.mark.parametrize("setting", [{"hidden": (10,)}, {"coupling_units": 3}, {"mean_field_steps": 2}])
def test_settings_of_the_energy_of_vectors_are_refused(setting: dict) -> None:
    with pytest.raises(InputError, match=f"{next(iter(setting))}.*no effect on images"):
        paper_image_energy(SMALL, masks(SMALL, 2), EnergyConfig(**setting).resolve("paper"))
    paper_image_energy(SMALL, masks(SMALL, 2), EnergyConfig(learning_rate=0.1).resolve("paper"))


def test_weights_are_counted_without_making_them() -> None:
    assert n_weights(SMALL, 30) == sum(p.numel() for p in small_interpreter([0]).parameters())
    by_hand = 64 * (3 * 25 + 1) + 256 * (64 * 25 + 1) + 512 * (256 * 25 + 1)
    by_hand += 2048 * (512 * 16 + 1) + 2048 * (2048 + 1) + 1024 * (2048 + 1)
    assert n_weights(ImageShape(3, 32, 32), 1024) == by_hand


@pytest.mark.parametrize(
    ("image", "n_targets", "memory"),
    [(ImageShape(3, 32, 32), 1024, "109.63"), (ImageShape(1, 8, 8), 9, "0.14"), (ImageShape(3, 128, 128), 1, "23.64")],
)
def test_too_many_targets_or_too_large_images_are_refused_with_their_memory(
    image: ImageShape, n_targets: int, memory: str
) -> None:
    with pytest.raises(InputError, match=rf"{n_targets} target.*take {memory} GB.*preset='default'"):
        PaperImageInterpreter(image, image.n_pixels, range(n_targets))


# --- inference by descent -----------------------------------------------------------------------------------


@dataclass
class Pairwise:
    """E(x, y) = x'y + y'Jy over the columns of y: small enough to list every mask."""

    space: OutputSpace
    J: Tensor
    power: float = 1.0

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.power * ((x * y).sum(dim=1) + ((y @ self.J) * y).sum(dim=1))


def pairwise(n_outputs: int, n_classes: int, strength: float, power: float = 1.0) -> Pairwise:
    space = OutputSpace((n_classes,) * n_outputs)
    J = torch.randn(space.n_columns, space.n_columns, generator=torch.Generator().manual_seed(3))
    return Pairwise(space, strength * J, power)


def listed(energy: Pairwise, x: Tensor) -> tuple[Tensor, Tensor]:
    """Every output, and its energy for every row, by a loop."""
    space = energy.space
    every = torch.tensor(list(itertools.product(range(space.n_classes[0]), repeat=space.n_outputs)))
    return every, torch.stack([energy(x, space.encode(codes.expand(len(x), -1))) for codes in every], dim=1)


@pytest.mark.parametrize("power", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(("n_outputs", "n_classes"), [(9, 2), (5, 3)])
def test_descent_finds_the_minimum(n_outputs: int, n_classes: int, power: float) -> None:
    energy = pairwise(n_outputs, n_classes, 0.03, power)
    x = torch.randn(40, energy.space.n_columns, generator=torch.Generator().manual_seed(4))
    every, table = listed(energy, x)
    found = paper.infer(energy, x)
    exact = every[table.argmin(dim=1)]
    assert (found == exact).all(dim=1).float().mean() > 0.9
    assert (found == exact).float().mean() > 0.97


@pytest.mark.parametrize(("n_outputs", "n_classes"), [(9, 2), (5, 3)])
def test_the_best_other_output_is_second_best_where_the_best_is_excluded(n_outputs: int, n_classes: int) -> None:
    energy = pairwise(n_outputs, n_classes, 0.03)
    x = torch.randn(40, energy.space.n_columns, generator=torch.Generator().manual_seed(5))
    every, table = listed(energy, x)
    order = table.argsort(dim=1)
    first, second = every[order[:, 0]], every[order[:, 1]]
    found = paper.best_other(energy, x, first)
    assert not (found == first).all(dim=1).any()
    assert (found == second).all(dim=1).float().mean() > 0.9
    # Excluding anything that was not going to be found changes nothing.
    last = every[order[:, -1]]
    assert torch.equal(paper.best_other(energy, x, last), paper.infer(energy, x))


def test_the_best_other_output_always_differs() -> None:
    energy = small_energy()
    x = random_rows(6, SMALL.n_columns)
    minimum = paper.infer(energy, x)
    for codes in (minimum, 1 - minimum, torch.zeros_like(minimum), torch.ones_like(minimum)):
        assert (paper.best_other(energy, x, codes) != codes).any(dim=1).all()


def test_a_constant_energy_leads_nowhere_and_still_gives_another_output() -> None:
    energy = Pairwise(OutputSpace((2,) * 4), torch.zeros(4, 4))
    codes = paper.infer(energy, torch.zeros(2, 4))
    assert (paper.best_other(energy, torch.zeros(2, 4), codes) != codes).sum(dim=1).tolist() == [1, 1]


def test_outputs_of_one_class_have_no_other() -> None:
    energy = Pairwise(OutputSpace((1,) * 4), torch.zeros(4, 4))
    codes = torch.zeros(2, 4, dtype=torch.long)
    assert torch.equal(paper.best_other(energy, torch.zeros(2, 4), codes), codes)


def test_a_row_is_inferred_alike_in_any_company() -> None:
    energy = pairwise(9, 2, 0.3)
    x = torch.randn(200, 9, generator=torch.Generator().manual_seed(6))
    assert torch.equal(paper.infer(energy, x)[150:], paper.infer(energy, x[150:]))


def test_inference_leaves_the_weights_without_gradients() -> None:
    energy = small_energy().requires_grad_(True)
    x = random_rows(2, SMALL.n_columns)
    with torch.no_grad():
        paper.best_other(energy, x, paper.infer(energy, x))
    assert all(p.grad is None for p in energy.parameters())


@pytest.mark.parametrize("n_classes", [3, 5])
def test_projection_is_the_nearest_point_of_the_simplex(n_classes: int) -> None:
    y = torch.randn(20, 2 * n_classes, generator=torch.Generator().manual_seed(7))
    shares = paper.project(y, n_classes).view(-1, n_classes).double().numpy()
    for point, share in zip(y.view(-1, n_classes).double().numpy(), shares, strict=True):
        low, high = point.min() - 1.0, point.max()  # shares are max(0, point - level): find the level by halving
        for _ in range(60):
            level = (low + high) / 2
            low, high = (level, high) if np.maximum(point - level, 0).sum() > 1 else (low, level)
        np.testing.assert_allclose(share, np.maximum(point - level, 0), atol=1e-6)


def test_projection_of_large_numbers_keeps_the_largest() -> None:
    y = torch.tensor([[1e9, -1e9, 0.0], [3e8, 3e8, 1e30]])
    assert paper.project(y, 3).tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_the_short_encoding_equals_that_of_the_space(n_classes: int) -> None:
    space = OutputSpace((n_classes,) * 4)
    codes = random_codes(5, space)
    assert torch.equal(paper.encode(codes, n_classes), space.encode(codes))


def test_likelihood_asks_descent_about_the_energy_of_images() -> None:
    energy, likelihood = small_energy(3), Likelihood()
    x, targets, values = random_rows(2, SMALL.n_columns), torch.tensor([4, 20]), torch.tensor([2, 0])
    predicted = likelihood.predict(energy, x)
    assert torch.equal(predicted, paper.infer(energy, x))
    of_value = likelihood.target_log_likelihood(energy, x, targets, values)
    for row in range(2):
        weights = []
        for code in range(3):
            codes = predicted[[row]].clone()
            codes[0, targets[row]] = code
            weights.append(np.exp(-energy(x[[row]], energy.space.encode(codes)).item()))
        assert np.exp(of_value[row].item()) == pytest.approx(weights[values[row]] / sum(weights), rel=1e-4)


# --- the value of a mask ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_mask_overlap_equals_its_twin(n_classes: int) -> None:
    space = OutputSpace((n_classes,) * 6)
    a, b = random_codes(30, space, seed=1), random_codes(30, space, seed=2)
    for row, value in enumerate(losses.mask_overlap(a, b).tolist()):
        first = {(pixel, code) for pixel, code in enumerate(a[row].tolist()) if code}
        second = {(pixel, code) for pixel, code in enumerate(b[row].tolist()) if code}
        n_either = len({pixel for pixel, _ in first | second})
        assert value == pytest.approx(len(first & second) / n_either if n_either else 1.0)


def test_empty_masks_are_alike_and_nothing_like_others() -> None:
    empty, one = torch.zeros(1, 3, dtype=torch.long), torch.tensor([[0, 1, 0]])
    assert losses.mask_overlap(empty, empty).item() == 1.0
    assert losses.mask_overlap(empty, one).item() == 0.0


# --- the recipe -------------------------------------------------------------------------------------------


def planted_images(n: int, *, bytes_: bool = False) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, size=(n, 1, 8, 8))
    return images.astype(np.uint8) if bytes_ else images / 255.0


def bright(images: np.ndarray) -> np.ndarray:
    """A pixel is marked where it is bright."""
    return (images[:, 0] > (127 if images.dtype == np.uint8 else 0.5)).astype(int)


def three_levels(images: np.ndarray) -> np.ndarray:
    return np.digitize(images[:, 0], [1 / 3, 2 / 3])


def explainer(model=bright, **settings) -> SOInter:
    return SOInter(model, **{"preset": "paper", "k": 4, "random_state": 0, **QUICK, **settings})


@pytest.fixture(scope="module")
def fitted_on_shares() -> SOInter:
    return explainer().fit(planted_images(16), targets=[(2, 3)])


@pytest.mark.parametrize("structured", [True, False])
def test_one_pixel_of_a_mask_is_explained(structured: bool, fitted_on_shares: SOInter) -> None:
    images = planted_images(16)
    fitted = fitted_on_shares if structured else explainer(structured=False).fit(images, targets=[(2, 3)])
    assert fitted.targets_ == [19]
    explanation = fitted.explain(images[:5], target=(2, 3))
    assert explanation.selected.shape == (5, 4)
    assert (np.sort(explanation.selected, axis=1)[:, 1:] > np.sort(explanation.selected, axis=1)[:, :-1]).all()
    assert np.isfinite(explanation.scores).all()
    assert explanation.value.tolist() == bright(images[:5])[:, 2, 3].tolist()
    with pytest.raises(InputError):
        fitted.explain(images[:5], target=(2, 4))


def test_the_same_seed_gives_the_same_explainer_and_another_seed_another(fitted_on_shares: SOInter) -> None:
    images = planted_images(16)
    again, otherwise = (explainer(random_state=seed).fit(images, targets=[(2, 3)]) for seed in (0, 1))
    first, second, other = (
        fitted.explain(images[:4], target=(2, 3)).scores for fitted in (fitted_on_shares, again, otherwise)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, other)


def test_bytes_are_explained_as_their_shares_are(fitted_on_shares: SOInter) -> None:
    shares = fitted_on_shares
    as_bytes = explainer().fit(planted_images(16, bytes_=True), targets=[(2, 3)])
    assert as_bytes.energy_.scale.item() == pytest.approx(1 / 255)
    assert as_bytes.interpreter_.scale.item() == pytest.approx(1 / 255)
    assert shares.energy_.scale.item() == shares.interpreter_.scale.item() == 1
    a = shares.explain(planted_images(4), target=(2, 3)).scores
    b = as_bytes.explain(planted_images(4, bytes_=True), target=(2, 3)).scores
    np.testing.assert_allclose(a, b, atol=1e-3)


def test_standardised_images_are_scaled_by_their_largest_number() -> None:
    images = planted_images(16) * 40 - 20
    fitted = explainer(lambda images: (images[:, 0] > 0).astype(int)).fit(images, targets=[(2, 3)])
    assert fitted.energy_.scale.item() == pytest.approx(1 / np.abs(images).max())


def test_masks_of_classes_and_patches_and_several_targets() -> None:
    from sointer.masking.groups import Patches

    images = planted_images(16)
    fitted = explainer(three_levels, groups=Patches(4), k=2).fit(images, targets=[(2, 3), (7, 7)])
    explanation = fitted.explain(images[:4], target=[(2, 3), (7, 7), (7, 7), (2, 3)])
    assert explanation.scores.shape == (4, 4)
    assert explanation.mask.sum(axis=1).tolist() == [32] * 4  # two patches of 16 pixels
    assert fitted.energy_.n_channels == 3
    assert fitted.interpreter_.networks[0][-1].out_features == 4


def test_more_than_eight_targets_are_refused() -> None:
    with pytest.raises(InputError, match=r"64 target\(s\) would take 0\.97 GB.*preset='default'"):
        explainer().fit(planted_images(16))


def test_what_the_paper_cannot_do_with_images_is_refused_before_a_query() -> None:
    from sointer.masking.superpixels import Superpixels

    asked = []

    def model(images: np.ndarray) -> np.ndarray:
        asked.append(len(images))
        return bright(images)

    for settings, message in (
        ({"groups": Superpixels(4)}, "superpixels.*Patches"),
        ({"interpreter": InterpreterConfig(hidden=(5,))}, "hidden.*no effect on images"),
    ):
        with pytest.raises(InputError, match=message):
            explainer(model, **settings).fit(planted_images(8), targets=[(2, 3)])
    with pytest.raises(InputError, match="GB in training"):
        explainer(model).fit(np.random.default_rng(0).random((2, 1, 128, 128)), targets=[(2, 3)])
    assert asked == []


def test_pre_training_brings_the_energy_to_the_value_of_what_it_finds() -> None:
    # How good y' is on average, that is; which masks are good is hardly learned from y' alone: see the deviations.
    images = planted_images(32)
    settings = {"training": TrainingConfig(n_rounds=0, n_pretraining_steps=20), "energy": EnergyConfig(batch_size=16)}
    fitted = explainer(**settings).fit(images, targets=[(2, 3)])
    x = torch.from_numpy(images.reshape(32, -1)).float()
    codes = torch.from_numpy(bright(images).reshape(32, -1))
    other = paper.best_other(fitted.energy_, x, codes)
    value = losses.mask_overlap(codes, other).mean().item()
    estimate = torch.sigmoid(-fitted.energy_(x, fitted.energy_.space.encode(other))).mean().item()
    assert value < 0.35  # an untrained energy says about one half of everything
    assert estimate == pytest.approx(value, abs=0.1)
