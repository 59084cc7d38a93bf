"""The paper's recipe as written: value-network pre-training, then the four alternating steps of section 2.4."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.torch_state import seeded
from sointer.config import EnergyConfig, InterpreterConfig, TrainingConfig
from sointer.data.images import BOUNDS
from sointer.data.outputs import Outputs
from sointer.energy import inference, paper
from sointer.energy import likelihood as losses
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import PaperEnergy, SideBySideEnergies, build_paper_energy
from sointer.energy.paper import PaperImageEnergy
from sointer.energy.space import OutputSpace
from sointer.errors import BlackBoxError, InputError
from sointer.interpreter.elimination import hard_top_k
from sointer.interpreter.paper import PaperImageInterpreter, PaperInterpreter, check_memory, gumbel_k_hot
from sointer.masking.superpixels import SuperpixelGroups
from sointer.training.context import FitContext, Trained, as_labels, concatenate, repeatability
from sointer.training.energy import quality_of_labels
from sointer.training.optim import torch_state_of


def check_images(context: FitContext) -> None:
    """Refuse, before the black box is queried, images that the paper's networks cannot serve."""
    image = context.rows.input_format.image
    if image is None:
        return
    if isinstance(context.rows.groups, SuperpixelGroups):
        raise InputError(
            "preset='paper' cannot choose among superpixels: each output of its interpreter network is one fixed part "
            "of the image, and superpixels are other parts in every image. Use groups=Patches(size), no groups, or "
            "preset='default'."
        )
    config = context.configs.interpreter
    if config.hidden != InterpreterConfig.presets["paper"]["hidden"]:
        raise InputError(
            f"InterpreterConfig.hidden={config.hidden!r} has no effect on images with preset='paper', whose "
            "convolutional interpreter is that of the paper's section 3.3. Remove the setting."
        )
    check_memory(image, context.rows.groups.n_units, 1)


def energy_for(context: FitContext, space: OutputSpace, alone: int | None = None) -> PaperEnergy:
    """A fresh energy of all outputs, or of the one that is to be seen alone."""
    image, n_columns = context.rows.input_format.image, context.rows.input_format.n_columns
    energy = build_paper_energy(n_columns, image, space, context.configs.energy, pixel=alone)
    if isinstance(energy, PaperImageEnergy):
        energy.scale.fill_(pixel_scale(context))
    return energy


def interpreter_for(context: FitContext, n_outputs: int, targets: Sequence[int]) -> PaperInterpreter:
    """Fresh networks W; of images for the targets alone, as each is large."""
    image, n_units = context.rows.input_format.image, context.rows.groups.n_units
    if image is None:
        return PaperInterpreter(
            context.rows.input_format.n_columns, n_units, n_outputs, context.configs.interpreter.hidden
        )
    interpreter = PaperImageInterpreter(image, n_units, targets)
    interpreter.scale.fill_(pixel_scale(context))
    return interpreter


def pixel_scale(context: FitContext) -> float:
    """What pixels are multiplied by before a network sees them: none is then larger than 1 or so."""
    if context.rows.input_format.pixel_range == "any":
        return 1.0 / (float(abs(context.rows.data).max()) or 1.0)
    return 1.0 / BOUNDS[context.rows.input_format.pixel_range][1]


def value_for(energy: PaperEnergy) -> Callable[[Tensor, Tensor], Tensor]:
    """v of appendix B: F1 for labels, intersection over union for masks, else the share of outputs that agree."""
    if isinstance(energy, PaperImageEnergy) and energy.pixel is None:
        return losses.mask_overlap
    return losses.example_f1 if energy.space.is_binary else losses.matching_share


def other_than(energy: PaperEnergy, x: Tensor, codes: Tensor) -> Tensor:
    """y' != codes of least energy, by gradient inference."""
    if isinstance(energy, PaperImageEnergy):
        return paper.best_other(energy, x, codes)
    return inference.best_other(energy, x, codes, exact=False)


def energy_in_training(energy: PaperEnergy, x: Tensor, codes: Tensor, generator: torch.Generator) -> Tensor:
    """E(x, y) for a step on the energy's own weights, with dropout where the energy has it."""
    more = [generator] if isinstance(energy, PaperImageEnergy) else []
    result: Tensor = energy(x, energy.space.encode(codes), *more)
    return result


N_ROWS_PER_ROUND, MIN_ROWS_PER_ROUND = 1000, 32
MIN_ROUNDS = 10
PENALTY_WINDOW = 10


def train_paper(context: FitContext) -> Trained:
    """Pre-train the energy once; then train one interpreter for each target beside its own copy of it."""
    energy_config, interpreter_config, training_config = context.configs
    structured = context.structured
    check_images(context)
    index = context.rng.permutation(context.rows.n_samples)[: max(2, min(N_ROWS_PER_ROUND, context.n_queries // 2))]
    answered = context.query(index)
    replies = concatenate([answered] if answered is not None else [])
    index = index[: len(replies)]
    context.check(replies.raw)
    outputs, target_list = context.describe(replies.raw)
    if "continuous" in outputs.kinds:
        raise InputError(
            "preset='paper' explains discrete outputs only, and this black box returns continuous ones; "
            "use preset='default'."
        )
    repeatability(context, outputs, index, replies)
    codes, points = as_labels(outputs, replies.raw), replies.points.dense()
    with seeded(int(context.rng.integers(2**31))):
        interpreter = interpreter_for(context, outputs.n_outputs, target_list)
        whole_energy = energy_for(context, OutputSpace.of(outputs))
        # SOInter-1: the energy sees the target alone.
        own_energies = {
            t: energy_for(context, OutputSpace((outputs.n_classes[t],)), alone=t)
            for t in ([] if structured else target_list)
        }
    likelihood = Likelihood.of(energy_config)
    if structured:
        pretrain(context, whole_energy, points, codes, energy_config, training_config)
    for n_done, target in enumerate(target_list):
        if structured:
            energy, seen, position = copy.deepcopy(whole_energy), codes, target
        else:
            energy, seen, position = own_energies[target], codes[:, [target]], 0
            pretrain(context, energy, points, seen, energy_config, training_config)
        # What is left of the budget is shared out, so that no target is left untrained.
        left = context.rows.model.remaining
        share = None if left is None else left // (len(target_list) - n_done)
        n_rows = len(index) if share is None else min(len(index), max(MIN_ROWS_PER_ROUND, share // MIN_ROUNDS))
        rounds = Rounds(
            context, energy, interpreter, target, position, index[:n_rows], points[:n_rows], seen[:n_rows], outputs
        )
        with context.rows.model.budget(share):
            rounds.run(energy_config, interpreter_config, training_config)
    energy_of_all = whole_energy if structured else SideBySideEnergies(OutputSpace.of(outputs), own_energies)
    with torch.no_grad():
        predicted = likelihood.predict(energy_of_all, points)[:, target_list]
    interpreter.requires_grad_(False)
    context.history.close()
    wanted = codes[:, target_list]
    energy_of_all.requires_grad_(False)
    quality = quality_of_labels(float("nan"), predicted, wanted)
    return Trained(outputs, target_list, energy_of_all, interpreter, quality, (index, codes.numpy()))


def pretrain(
    context: FitContext,
    energy: PaperEnergy,
    x: Tensor,
    codes: Tensor,
    energy_config: EnergyConfig,
    training_config: TrainingConfig,
) -> None:
    """Appendix B: y' by gradient inference, y' != y, and its value as the label of sigmoid(-E)."""
    value_of = value_for(energy)
    optimiser = torch.optim.Adam(energy.parameters(), lr=energy_config.learning_rate)
    n_steps = training_config.n_pretraining_steps
    context.history.stage("pre-training the energy", n_steps)
    draws = context.generator.get_state()
    state = torch_state_of(energy, optimiser) | {"draws": draws}
    stage = context.snapshots.stage(state, n_steps, context.history)
    context.generator.set_state(draws)
    context.history.step(stage.n_done)
    for step in range(stage.n_done, n_steps):
        batch = torch.randint(len(x), (energy_config.batch_size,), generator=context.generator)
        other = other_than(energy, x[batch], codes[batch])
        value = value_of(codes[batch], other)
        loss = losses.value_network_loss(energy_in_training(energy, x[batch], other, context.generator), value).mean()
        take_step(optimiser, loss)
        context.history.step(loss=float(loss.detach()))
        if step % 100 == 99:
            context.history.record(stage="pre-training", step=step + 1, training_loss=float(loss.detach()))
        draws.copy_(context.generator.get_state())
        stage.keep(step + 1)


@dataclass(frozen=True)
class RoundLog:
    """What rounds selected, and where their draws began: those taken before are replayed, not learned again."""

    penalties: Tensor
    selected: Tensor
    """(queries, rows, units / 8), a bit for each unit."""
    draws: Tensor
    """(rounds + 1, bytes): states of the generator."""

    @classmethod
    def of(cls, n_rounds: int, n_rows: int, n_units: int, generator: torch.Generator) -> RoundLog:
        """Empty, but for where the first round begins to draw."""
        first = generator.get_state()
        zeros = partial(torch.zeros, device="cpu")
        selected = zeros((n_rounds + 1, n_rows, -(-n_units // 8)), dtype=torch.uint8)
        draws = zeros((n_rounds + 1, len(first)), dtype=torch.uint8)
        draws[0] = first
        return cls(zeros(n_rounds, dtype=torch.float64), selected, draws)

    def state(self) -> dict[str, Tensor]:
        return {"penalties": self.penalties, "selected": self.selected, "draws": self.draws}

    def put(self, number: int, keep: NDArray[np.bool_]) -> None:
        self.selected[number] = torch.from_numpy(np.packbits(keep, axis=1)).cpu()

    def selection(self, number: int, n_units: int) -> NDArray[np.bool_]:
        return np.unpackbits(self.selected[number].numpy(), axis=1, count=n_units).astype(bool)


class Rounds:
    """The alternating optimisation of section 2.4 for one target."""

    def __init__(
        self,
        context: FitContext,
        energy: PaperEnergy,
        interpreter: PaperInterpreter,
        target: int,
        position: int,
        index: NDArray[np.int64],
        x: Tensor,
        codes: Tensor,
        outputs: Outputs,
    ) -> None:
        self.context, self.energy, self.interpreter = context, energy, interpreter
        self.target, self.position = target, position
        self.index, self.x, self.codes, self.outputs = index, x, codes, outputs

    def run(self, energy_config: EnergyConfig, interpreter_config: InterpreterConfig, config: TrainingConfig) -> None:
        """At most n_rounds rounds, until the penalty no longer changes or the budget ends."""
        network = self.interpreter.network_for(self.target)
        self.interpreter_step = torch.optim.Adam(network.parameters(), lr=interpreter_config.learning_rate)
        self.energy_step = torch.optim.Adam(self.energy.parameters(), lr=energy_config.learning_rate)
        self.temperature = interpreter_config.temperature
        self.batch_size, self.margin = interpreter_config.batch_size, config.margin
        history, n_rounds = self.context.history, config.n_rounds
        history.stage(f"training the interpreter of output {self.target}", n_rounds)
        self.log = RoundLog.of(n_rounds, len(self.index), self.context.rows.groups.n_units, self.context.generator)
        own = {f"interpreter.{name}": t for name, t in torch_state_of(network, self.interpreter_step).items()}
        state = self.log.state() | own | torch_state_of(self.energy, self.energy_step)
        self.stage = self.context.snapshots.stage(state, n_rounds, history)
        n_known = self.stage.n_done
        perturbed, n_done = self.black_box_on_selection(0, is_known=n_known > 0), 0
        while perturbed is not None and n_done < n_rounds:
            if n_done < n_known:
                perturbed = self.repeat_round(n_done, len(perturbed[1]))
            else:
                perturbed = self.new_round(n_done, perturbed[1])
            n_done += 1
            history.step(penalty=float(self.log.penalties[n_done - 1]))
            if settled(self.log.penalties[:n_done].tolist(), config.penalty_tolerance):
                break
        self.stage.keep(n_done, is_last=True)
        network.zero_grad(set_to_none=True)  # of a large network, memory that the next one needs

    def new_round(self, number: int, perturbed_codes: Tensor) -> tuple[Tensor, Tensor] | None:
        """The four steps; returns what step 2 did."""
        penalty = self.update_interpreter(perturbed_codes)
        perturbed = self.black_box_on_selection(number + 1)
        if perturbed is not None:
            self.update_energy(*perturbed)
        self.context.history.record(stage="rounds", output=self.target, round=number + 1, penalty=penalty)
        self.log.penalties[number] = penalty
        self.log.draws[number + 1] = self.context.generator.get_state()
        self.stage.keep(number + 1)
        return perturbed

    def repeat_round(self, number: int, n_rows: int) -> tuple[Tensor, Tensor] | None:
        """What is left of a round whose networks are known: its draws of rows, and step 2."""
        generator = self.context.generator
        generator.set_state(self.log.draws[number].clone())  # torch crashes if it is given a part of a tensor
        for batch in torch.randperm(n_rows, generator=generator).split(self.batch_size):
            self.absent(batch)
        generator.set_state(self.log.draws[number + 1].clone())
        return self.black_box_on_selection(number + 1, is_known=True)

    def update_interpreter(self, perturbed_codes: Tensor) -> float:
        """Step 1: descend eq. 9 with y~ of the round before; returns the mean penalty."""
        total = 0.0
        order = torch.randperm(len(perturbed_codes), generator=self.context.generator)
        for batch in order.split(self.batch_size):
            x = self.x[batch]
            share = gumbel_k_hot(
                self.interpreter.scores_for(x, self.target),
                self.context.k,
                self.temperature,
                self.context.generator,
            )
            absent = self.absent(batch)
            columns = torch.as_tensor(self.context.rows.groups.unit_of_column)
            masked = absent + share[:, columns] * (x - absent)
            swapped = losses.target_substituted(self.codes[batch], perturbed_codes[batch], self.position)
            encode = self.energy.space.encode
            loss = losses.interpreter_hinge(
                self.energy(masked, encode(swapped)), self.energy(masked, encode(perturbed_codes[batch]))
            ).mean()
            take_step(self.interpreter_step, loss)
            total += float(loss.detach()) * len(batch)
        return total / len(perturbed_codes)

    def black_box_on_selection(self, number: int, *, is_known: bool = False) -> tuple[Tensor, Tensor] | None:
        """Step 2: x~ and y~ = f(x~) for the selection after so many rounds; None when the budget has ended."""
        remaining = self.context.rows.model.remaining
        if remaining is not None and remaining < len(self.index):
            self.context.budget_ran_out = True
            return None
        if is_known:
            keep = self.log.selection(number, self.context.rows.groups.n_units)
        else:
            with torch.no_grad():
                keep = hard_top_k(self.interpreter.scores_for(self.x, self.target), self.context.k).numpy()
            self.log.put(number, keep)
        replies = self.context.query(self.index, keep)
        assert replies is not None
        if not self.outputs.knows(replies.raw).all():
            raise BlackBoxError(
                "the black box returned a class for reduced inputs that it never returned for whole ones, which "
                "preset='paper' cannot learn from; use preset='default', or give data on which every class occurs."
            )
        codes = as_labels(self.outputs, replies.raw)
        return replies.points.dense(), codes if self.codes.shape[1] > 1 or codes.shape[1] == 1 else codes[
            :, [self.target]
        ]

    def update_energy(self, masked: Tensor, perturbed_codes: Tensor) -> None:
        """Steps 3 and 4: find y' != y~, then descend eq. 10."""
        order = torch.randperm(len(masked), generator=self.context.generator)
        for batch in order.split(self.batch_size):
            x, codes = masked[batch], perturbed_codes[batch]
            other = other_than(self.energy, x, codes)
            of_perturbed, of_other = (
                energy_in_training(self.energy, x, y, self.context.generator) for y in (codes, other)
            )
            take_step(self.energy_step, losses.energy_hinge(of_perturbed, of_other, self.margin).mean())

    def absent(self, batch: Tensor) -> Tensor:
        rows = self.context.rows.samples(self.index[batch.numpy()])
        return self.context.as_tensor(
            self.context.rows.removal.apply(rows, np.zeros(rows.shape, dtype=bool), self.context.rng)
        )


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step of an optimiser down this loss."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


def settled(penalties: list[float], tolerance: float) -> bool:
    """Whether the mean penalty of the last rounds equals that of the rounds before, up to the tolerance."""
    if len(penalties) < 2 * PENALTY_WINDOW:
        return False
    late = float(np.mean(penalties[-PENALTY_WINDOW:]))
    early = float(np.mean(penalties[-2 * PENALTY_WINDOW : -PENALTY_WINDOW]))
    return abs(late - early) <= tolerance * max(abs(early), 1e-12)
