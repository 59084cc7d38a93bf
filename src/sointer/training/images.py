"""The default recipe for images: an energy on masks of several scales, then alternate select, ask, learn."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sointer.energy.image import ImageEnergy
from sointer.errors import InputError
from sointer.inputs.image import ImageShape
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.pixels import PixelUnits
from sointer.outputs import Outputs
from sointer.training.image_examples import Examples
from sointer.training.image_masks import several_scales
from sointer.training.image_pool import ImagePool, fits_half, room_for
from sointer.training.image_steps import SMALLEST_BATCH, ImageEnergySteps, ImageInterpreterSteps
from sointer.training.quality import Quality
from sointer.training.queries import N_FIRST
from sointer.training.task import Configs, Replies, Task, Trained, concatenate, n_asked_twice, repeatability, slices

PRETRAINING_SHARE = 0.5
MOST_HELD_OUT = 512
N_NEWEST = 400
ASKED_AT_ONCE = 1024
MOST_NUMBERS = 2**23
MOST_PIXELS_AT_ONCE, MOST_PIXELS_HELD_OUT = 2**18, 2**21
USABLE_SHARE = 0.5
"""Of the interpreter's steps, after which an interrupted fit is worth keeping."""


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
    repeatability(task, outputs, whole, first)
    codes = torch.from_numpy(outputs.labels(first.raw))
    pool = ImagePool(outputs, image.n_columns, room(task), half=fits_half(task.data))
    pool.add(first)
    interpreter = build_networks(
        image, outputs.n_classes[0], task.configs, structured=task.structured, generator=task.generator
    )
    interpreter.energy.scale_to(task.data[:n_rows])
    quality, interrupted = alternate(task, interpreter, pool, Examples.of(task, image, whole, codes, targets))
    original = whole < n_rows
    return Trained(
        outputs,
        targets,
        interpreter.energy,
        interpreter,
        quality,
        (whole[original], codes.numpy()[original]),
        interrupted,
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
    task.history.stage("asking the model", room(task), unit="rows")
    own, mirrored = task.rng.permutation(n_rows), task.rng.permutation(task.n_rows - n_rows)
    order = np.concatenate([own, n_rows + mirrored])[:n_whole]
    parts = [task.query(order[:N_FIRST])]
    if parts[0] is not None:
        # Wrong names or targets must come to light before the budget is spent.
        task.check(parts[0].raw)
    parts.append(task.query(order[N_FIRST:]))
    replies = concatenate([part for part in parts if part is not None])
    return replies, order[: len(replies)]


def alternate(task: Task, interpreter: ImageInterpreter, pool: ImagePool, examples: Examples) -> tuple[Quality, bool]:
    """Learn the energy on random masks; then rounds: train the interpreter, ask about its choices, learn from them.

    Returns how good the energy is in the end, and whether that came early, by an interrupt.
    """
    energy_config, config, training = task.configs
    n_rounds = training.n_rounds
    n_on_policy = int(room(task) * training.on_policy_share) if n_rounds else 0
    ask_random(task, pool, max(0, room(task) - n_on_policy - len(pool) - n_asked_twice(task)))
    hold_out(task, pool)
    n_steps = max(20, training.n_epochs * room(task) // energy_config.batch_size)
    n_selecting = config.n_residual_steps
    energy_steps = ImageEnergySteps(interpreter.energy, pool, energy_config, n_steps, task.generator, task.history)
    interpreter_steps = ImageInterpreterSteps(
        interpreter, config, n_selecting, task.generator, batch_size=batch_size(task)
    )
    task.history.stage("learning", n_steps)
    energy_steps.run(int(n_steps * (PRETRAINING_SHARE if n_rounds else 1.0)), "pre-training")
    task.history.stage("learning to choose pixels", n_selecting + n_steps - energy_steps.n_done)
    first_selected = len(pool)
    interrupted = False
    try:
        # Short rounds: an interpreter left alone with the energy soon finds out where the energy is wrong.
        for left in range(max(n_rounds, 1), 0, -1):
            for _ in range((n_selecting - interpreter_steps.n_done) // left):
                task.history.step(loss=interpreter_steps.step(examples.draw(batch_size(task))))
            ask_selected(task, interpreter_steps, pool, examples, (n_on_policy - (len(pool) - first_selected)) // left)
            energy_steps.newest = torch.arange(max(first_selected, len(pool) - N_NEWEST), len(pool))
            energy_steps.run((n_steps - energy_steps.n_done) // left, "rounds")
    except KeyboardInterrupt:
        if interpreter_steps.n_done < USABLE_SHARE * n_selecting:
            raise
        interrupted = True
        task.asker.stop()
    if interpreter_steps.losses:
        task.history.record(stage="selecting", interpreter_losses=interpreter_steps.losses)
    interpreter.requires_grad_(False).eval()
    return energy_steps.quality(), interrupted


def ask_random(task: Task, pool: ImagePool, n: int) -> None:
    """Ask about images of which random parts are kept."""
    assert task.input_format.image is not None
    size = task.input_format.image.size

    def keeps(index: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        units = PixelUnits.of(task.groups.take(index), len(index))
        return several_scales(units, size, len(index), rng)

    for part in slices(n, asked_at_once(task)):
        replies = task.query(task.rng.integers(task.n_rows, size=part.stop - part.start), keeps)
        if replies is not None:
            pool.add(replies)


def ask_selected(task: Task, steps: ImageInterpreterSteps, pool: ImagePool, examples: Examples, n: int) -> None:
    """Ask about images reduced to what the interpreter chooses, with the noise that it is trained with."""
    for part in slices(n, batch_size(task)):
        batch = examples.draw(part.stop - part.start)
        with torch.no_grad():
            keep = steps.select(batch.scores(steps.interpreter), batch.sizes) > 0.5
        replies = task.query(batch.index, keep.numpy())
        if replies is not None:
            pool.add(replies)


def hold_out(task: Task, pool: ImagePool) -> None:
    """Answers that are not learned from; at least one, unless there is only one."""
    n = min(MOST_HELD_OUT, max(1, MOST_PIXELS_HELD_OUT // pool.outputs.n_outputs))
    n = min(n, max(1, round(len(pool) * task.configs.training.validation_share)))
    if len(pool) > 1:
        pool.held_out[torch.randperm(len(pool), generator=task.generator)[:n]] = True


def asked_at_once(task: Task) -> int:
    return max(1, min(ASKED_AT_ONCE, MOST_NUMBERS // task.input_format.n_columns))


def batch_size(task: Task) -> int:
    """How many images the interpreter learns from at once: fewer if they are large."""
    assert task.input_format.image is not None
    at_once = MOST_PIXELS_AT_ONCE // task.input_format.image.n_pixels
    return max(SMALLEST_BATCH, min(task.configs.interpreter.batch_size, at_once))
