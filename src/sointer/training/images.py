"""The default recipe for images: an energy on masks of several scales, then alternate select, ask, learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.energy.image import ImageEnergy
from sointer.errors import InputError
from sointer.inputs.image import ImageShape
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.pixels import PixelUnits, distance_to
from sointer.outputs import Outputs
from sointer.selection import allowed_units
from sointer.training.image_masks import several_scales
from sointer.training.image_pool import ImagePool, fits_half, room_for
from sointer.training.image_steps import Batch, ImageEnergySteps, ImageInterpreterSteps
from sointer.training.queries import N_FIRST
from sointer.training.task import Configs, Replies, Task, Trained, concatenate, n_asked_twice, slices, warn_if_unstable

PRETRAINING_SHARE = 0.5
SHARE_OF_UNUSUAL = 0.5
SHARE_OF_REGIONS = 0.2
LARGEST_REGION = 0.5
FEWEST_UNITS, MOST_UNITS = 0.005, 0.4
SHARE_OF_ANY_SIZE = 0.3
MOST_HELD_OUT = 512
N_NEWEST = 400
ASKED_AT_ONCE = 1024
MOST_NUMBERS = 2**23


def build_networks(
    image: ImageShape, n_classes: int, configs: Configs, *, structured: bool, generator: torch.Generator | None = None
) -> ImageInterpreter:
    """An interpreter and, in it, its energy; with weights if there is a generator to draw them."""
    energy = ImageEnergy(
        image,
        n_classes,
        configs.energy.hidden,
        coupling_units=configs.energy.coupling_units,
        n_steps=configs.energy.mean_field_steps,
        structured=structured,
    )
    interpreter = ImageInterpreter(energy, configs.interpreter.hidden)
    if generator is not None:
        energy.initialise(generator)
        interpreter.initialise(generator)
        if configs.interpreter.n_residual_steps == 0:
            torch.nn.init.zeros_(interpreter.network.out.weight)  # untrained, it would only add noise
    return interpreter


def train_images(task: Task) -> Trained:
    """See docs/method.md."""
    image = task.input_format.image
    assert image is not None
    n_rows = task.n_rows
    add_mirror_images(task, image)
    first, whole = ask_whole(task, n_rows)
    outputs, targets = task.describe(first.raw)
    check_masks(outputs, image)
    warn_if_unstable(task, outputs, whole, first)
    codes = torch.from_numpy(outputs.encode(first.raw))
    pool = ImagePool(outputs, image.n_columns, room(task), half=fits_half(task.data))
    pool.add(first)
    interpreter = build_networks(
        image, outputs.n_classes[0], task.configs, structured=task.structured, generator=task.generator
    )
    interpreter.energy.scale_to(task.data[:n_rows])
    steps = alternate(task, interpreter, pool, Examples.of(task, image, whole, codes, targets))
    quality = steps.quality()
    original = whole < n_rows
    return Trained(
        outputs,
        targets,
        interpreter.energy,
        interpreter,
        quality.agreement,
        quality.skill,
        (whole[original], codes.numpy()[original]),
        quality.poorly_told,
    )


def check_masks(outputs: Outputs, image: ImageShape) -> None:
    if outputs.shape is None or outputs.kind == "continuous":
        got = f"{outputs.n_outputs} outputs" if outputs.shape is None else "numbers"
        raise InputError(
            f"the black box returned {got} for images, expected masks of classes (n, {image.height}, {image.width}). "
            "Return the class of every pixel or, for two classes, its probability. To explain other outputs of images, "
            "give them flat, as rows (n, features), and reshape them inside your function."
        )


def add_mirror_images(task: Task, image: ImageShape) -> None:
    """Let every image also be seen in a mirror, left to right: twice as many to learn from."""
    mirrored = image.unflatten(task.data)[..., ::-1].reshape(task.n_rows, -1)
    task.data = np.concatenate([task.data, mirrored])
    task.groups = task.groups.bind(task.data)


def room(task: Task) -> int:
    """How many answers are kept."""
    assert task.input_format.image is not None
    return min(task.n_queries, room_for(task.input_format.n_columns, task.input_format.image.n_pixels))


def ask_whole(task: Task, n_rows: int) -> tuple[Replies, NDArray[np.int64]]:
    """Images as they are, first the user's own, then mirrored ones, as far as a fifth of the queries goes."""
    n_whole = min(task.n_rows, max(2, room(task) // 5))
    task.history.stage("asking the black box", room(task))
    own, mirrored = task.rng.permutation(n_rows), task.rng.permutation(task.n_rows - n_rows)
    order = np.concatenate([own, n_rows + mirrored])[:n_whole]
    parts = [task.query(order[:N_FIRST])]
    if parts[0] is not None:
        # Wrong names or targets must come to light before the budget is spent.
        task.check(parts[0].raw)
    parts.append(task.query(order[N_FIRST:]))
    replies = concatenate([part for part in parts if part is not None])
    return replies, order[: len(replies)]


@dataclass
class Examples:
    """Images with known masks, from which targets are drawn to learn on."""

    task: Task
    image: ImageShape
    index: NDArray[np.int64]
    codes: Tensor
    targets: Tensor
    unusual: Tensor
    """(row, target) pairs whose class is not the usual one."""

    @classmethod
    def of(cls, task: Task, image: ImageShape, index: NDArray[np.int64], codes: Tensor, targets: list[int]) -> Examples:
        chosen = torch.tensor(targets)
        seen = codes[:, chosen]
        row, place = torch.nonzero(seen != seen.flatten().mode().values, as_tuple=True)
        return cls(task, image, index, codes, chosen, torch.stack([row, chosen[place]], 1))

    def draw(self, n: int) -> Batch:
        """n images with a target each: most of them of an unusual class, some of them regions."""
        generator = self.task.generator
        rows = torch.randint(len(self.index), (n,), generator=generator)
        targets = self.targets[torch.randint(len(self.targets), (n,), generator=generator)]
        n_unusual = round(SHARE_OF_UNUSUAL * n) if len(self.unusual) else 0
        if n_unusual:
            picked = self.unusual[torch.randint(len(self.unusual), (n_unusual,), generator=generator)]
            rows[:n_unusual], targets[:n_unusual] = picked.T
        region = np.zeros((n, self.image.n_pixels), dtype=bool)
        region[np.arange(n), targets.numpy()] = True
        self._grow(region, targets.numpy())
        return self._batch(rows, region)

    def _grow(self, region: NDArray[np.bool_], targets: NDArray[np.int64]) -> None:
        """Make some of the targets boxes around their pixel, of the pixels that may be asked about."""
        rng, (height, width) = self.task.rng, self.image.size
        may = np.zeros(self.image.n_pixels, dtype=bool)
        may[self.targets.numpy()] = True
        for i in np.flatnonzero(rng.random(len(region)) < SHARE_OF_REGIONS):
            row, column = divmod(int(targets[i]), width)
            high, wide = (max(1, int(side * LARGEST_REGION * rng.random())) for side in (height, width))
            top, left = max(0, row - int(rng.integers(high))), max(0, column - int(rng.integers(wide)))
            box = np.zeros((height, width), dtype=bool)
            box[top : top + high, left : left + wide] = True
            region[i] |= box.ravel() & may

    def _batch(self, rows: Tensor, region: NDArray[np.bool_]) -> Batch:
        task, n = self.task, len(rows)
        index = self.index[rows.numpy()]
        raw = task.rows(index)
        absent = task.removal.apply(raw, np.zeros(raw.shape, dtype=bool), task.rng)
        groups = task.groups.take(index)
        n_units = groups.n_units
        fewest, most = max(1.0, FEWEST_UNITS * n_units), max(2.0, MOST_UNITS * n_units)
        fewest, most = min(fewest, task.k), min(max(most, 2 * task.k), n_units)
        sizes = draw_sizes(fewest, most, n, task.rng)
        return Batch(
            index,
            task.as_tensor(raw),
            task.as_tensor(absent),
            torch.from_numpy(region.astype(np.float32)),
            self.codes[rows],
            torch.from_numpy(distance_to(region, self.image.size)),
            PixelUnits.of(groups, n),
            torch.from_numpy(allowed_units(task.removal, groups, raw)),
            torch.from_numpy(sizes).unsqueeze(1),
        )


def draw_sizes(fewest: float, most: float, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many units to choose: most often few, now and then any number up to `most`."""
    few = fewest * (most / fewest) ** rng.random(n)
    any_number = fewest + (most - fewest) * rng.random(n)
    return np.rint(np.where(rng.random(n) < SHARE_OF_ANY_SIZE, any_number, few)).astype(np.int64)


def alternate(task: Task, interpreter: ImageInterpreter, pool: ImagePool, examples: Examples) -> ImageEnergySteps:
    """Learn the energy on random masks; then rounds: train the interpreter, ask about its choices, learn from them."""
    energy_config, config, training = task.configs
    n_rounds = training.n_rounds
    n_on_policy = int(room(task) * training.on_policy_share) if n_rounds else 0
    ask_random(task, pool, max(0, room(task) - n_on_policy - len(pool) - n_asked_twice(task)))
    hold_out(task, pool)
    n_steps = max(20, training.n_epochs * room(task) // energy_config.batch_size)
    n_selecting = config.n_residual_steps
    energy_steps = ImageEnergySteps(interpreter.energy, pool, energy_config, n_steps, task.generator, task.history)
    interpreter_steps = ImageInterpreterSteps(interpreter, config, n_selecting, task.generator)
    task.history.stage("learning how images and masks hang together", n_steps)
    energy_steps.run(int(n_steps * (PRETRAINING_SHARE if n_rounds else 1.0)), "pre-training")
    task.history.stage("learning to choose pixels", n_selecting + n_steps - energy_steps.n_done)
    first_selected = len(pool)
    # Short rounds: an interpreter left alone with the energy soon finds out where the energy is wrong.
    for left in range(max(n_rounds, 1), 0, -1):
        for _ in range((n_selecting - interpreter_steps.n_done) // left):
            task.history.step(loss=interpreter_steps.step(examples.draw(config.batch_size)))
        ask_selected(task, interpreter_steps, pool, examples, (n_on_policy - (len(pool) - first_selected)) // left)
        energy_steps.newest = torch.arange(max(first_selected, len(pool) - N_NEWEST), len(pool))
        energy_steps.run((n_steps - energy_steps.n_done) // left, "rounds")
    if interpreter_steps.losses:
        task.history.record(stage="selecting", interpreter_losses=interpreter_steps.losses)
    interpreter.requires_grad_(False).eval()
    return energy_steps


def ask_random(task: Task, pool: ImagePool, n: int) -> None:
    """Ask about images of which random parts are kept."""
    assert task.input_format.image is not None
    size = task.input_format.image.size

    def keeps(index: NDArray[np.int64]) -> NDArray[np.bool_]:
        units = PixelUnits.of(task.groups.take(index), len(index))
        return several_scales(units, size, len(index), task.rng)

    for part in slices(n, asked_at_once(task)):
        replies = task.query(task.rng.integers(task.n_rows, size=part.stop - part.start), keeps)
        if replies is not None:
            pool.add(replies)


def ask_selected(task: Task, steps: ImageInterpreterSteps, pool: ImagePool, examples: Examples, n: int) -> None:
    """Ask about images reduced to what the interpreter chooses, with the noise that it is trained with."""
    for part in slices(n, steps.config.batch_size):
        batch = examples.draw(part.stop - part.start)
        with torch.no_grad():
            keep = steps.select(batch.scores(steps.interpreter), batch.sizes) > 0.5
        replies = task.query(batch.index, keep.numpy())
        if replies is not None:
            pool.add(replies)


def hold_out(task: Task, pool: ImagePool) -> None:
    """Answers that are not learned from; at least one, unless there is only one."""
    n = min(MOST_HELD_OUT, max(1, round(len(pool) * task.configs.training.validation_share)))
    if len(pool) > 1:
        pool.held_out[torch.randperm(len(pool), generator=task.generator)[:n]] = True


def asked_at_once(task: Task) -> int:
    return max(1, min(ASKED_AT_ONCE, MOST_NUMBERS // task.input_format.n_columns))
