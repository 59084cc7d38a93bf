"""Targets of the same image share a pass of the energy: every row is served once, and gets what it would get alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sointer.energy.image import ImageEnergy
from sointer.inputs.image import ImageShape
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.sharing import MOST_TARGETS_AT_ONCE, shared_slots


@pytest.mark.parametrize("n_images", [1, 3, 40, 500])
@pytest.mark.parametrize("n_rows", [1, 7, 500])
def test_every_row_is_in_one_slot_with_rows_of_its_own_image_only(n_rows, n_images):
    keys = np.random.default_rng(0).integers(n_images, size=n_rows).tolist()
    served = []
    for slots in shared_slots(keys, 16):
        assert len(slots) <= 16
        assert slots.shape[1] <= MOST_TARGETS_AT_ONCE
        for slot in slots:
            rows = slot[slot >= 0]
            assert len(rows) == (slot[: len(rows)] >= 0).sum() >= 1  # those that are empty come last
            assert len({keys[row] for row in rows}) == 1
            served += rows.tolist()
    assert sorted(served) == list(range(n_rows))


def test_many_targets_of_one_image_leave_no_slot_empty():
    (slots,) = shared_slots(["the one"] * 128, 16)
    assert slots.shape == (16, 8)
    assert (slots >= 0).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradients_of_several_targets_are_those_of_each_alone(n_classes):
    generator = torch.Generator().manual_seed(0)
    energy = ImageEnergy(ImageShape(1, 8, 8), n_classes, (4, 4), coupling_units=2, n_steps=2).initialise(generator)
    interpreter = ImageInterpreter(energy, (4, 4)).initialise(generator).eval()
    with torch.no_grad():
        energy.b.fill_(0.5)
    x = torch.randn(3, 64, generator=generator)
    codes = torch.randint(n_classes, (3, 64), generator=generator)
    regions = [torch.nn.functional.one_hot(torch.randint(64, (3,), generator=generator), 64).float() for _ in range(4)]
    together, expected = interpreter.gradients(x, regions, codes)
    for region, gradient in zip(regions, together, strict=True):
        (alone,), same = interpreter.gradients(x, [region], codes)
        assert torch.equal(alone, gradient)
        assert torch.equal(same, expected)
        assert gradient.abs().sum() > 0
