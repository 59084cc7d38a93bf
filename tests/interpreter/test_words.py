"""Conditions of localities, in the words of columns and outputs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.interpreter.scoring import Words
from sointer.interpreter.tables import LocalityTable


def test_conditions_speak_of_values_as_the_table_has_them() -> None:
    table = pd.DataFrame({"vip": [True, False], "old": pd.array([True, False], dtype="boolean"), "x": [1.0, 2.5]})
    words = Words(InputFormat.infer(table), Outputs.infer(np.array([["yes"], ["no"]])), LocalityTable(1, 1, 1))
    assert words.of(0, 0.5) == ("vip = False", "vip = True")
    assert words.of(1, 0.5) == ("old = False", "old = True")
    assert words.of(2, 1.75) == ("x <= 1.75", "x > 1.75")
    graded = Outputs.infer(np.array([[0.2], [0.9], [0.4]]))
    assert Words(InputFormat.infer(table), graded, LocalityTable(1, 1, 1)).of(3, 0.99996)[1] == "output y0 > 0.99996"
    assert words.of(3, 0.5) == ("output y0 = no", "output y0 = yes")
