"""Conditions of localities, in the words of columns and outputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.interpreter.tables import LocalityTable
from sointer.interpreter.trees import Words


def test_conditions_speak_of_values_as_the_table_has_them() -> None:
    table = pd.DataFrame({"vip": [True, False], "old": pd.array([True, False], dtype="boolean"), "x": [1.0, 2.5]})
    words = Words(InputFormat.infer(table), Outputs.infer(np.array([["yes"], ["no"]])), LocalityTable(1, 1, 1))
    assert words.of(0, 0.5) == ("vip = False", "vip = True")
    assert words.of(1, 0.5) == ("old = False", "old = True")
    assert words.of(2, 1.75) == ("x <= 1.75", "x > 1.75")
    graded = Outputs.infer(np.array([[0.2], [0.9], [0.4]]))
    assert Words(InputFormat.infer(table), graded, LocalityTable(1, 1, 1)).of(3, 0.99996)[1] == "output y0 > 0.99996"
    assert words.of(3, 0.5) == ("output y0 = no", "output y0 = yes")


def test_sums_are_written_as_people_write_them() -> None:
    table = LocalityTable(1, 1, 1, n_sums=2)
    table.sum_column[0, :3], table.sum_weight[0, :3] = (
        torch.tensor([0, 2, 1]),
        torch.tensor([1.0, -0.25, 12.5]).double(),
    )
    table.sum_column[1, :2], table.sum_weight[1, :2] = torch.tensor([1, 0]), torch.tensor([1.0, -1.0]).double()
    form = InputFormat.infer(pd.DataFrame({"age": [1.0, 2.5], "debt": [0.5, 2.0], "income": [3.0, 1.5]}))
    words = Words(form, Outputs.infer(np.array([["yes"], ["no"]])), table)
    name = "age - 0.25 income + 12.5 debt"
    assert words.of(-2, 30.0) == (f"{name} <= 30", f"{name} > 30")
    assert words.of(-3, -1234.56) == ("debt - age <= -1234.6", "debt - age > -1234.6")
