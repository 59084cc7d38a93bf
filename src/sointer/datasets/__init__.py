"""Data to explain models on: synthetic problems with planted truth, and seven-segment digits."""

from sointer.datasets.digits import SEGMENTS, SevenSegmentDigits, load_seven_segment_digits
from sointer.datasets.problem import Problem
from sointer.datasets.synthetic import (
    ALL_PROBLEMS,
    correlated,
    energy_e1,
    energy_e2,
    instancewise_switch,
    mediated_and,
    mediated_categorical,
    mediated_chain,
    mediated_continuous,
    mediated_majority,
    mediated_xor,
    paper_e1,
    paper_e2,
    shuffled,
    with_decoys,
)

__all__ = [
    "ALL_PROBLEMS",
    "SEGMENTS",
    "Problem",
    "SevenSegmentDigits",
    "correlated",
    "energy_e1",
    "energy_e2",
    "instancewise_switch",
    "load_seven_segment_digits",
    "mediated_and",
    "mediated_categorical",
    "mediated_chain",
    "mediated_continuous",
    "mediated_majority",
    "mediated_xor",
    "paper_e1",
    "paper_e2",
    "shuffled",
    "with_decoys",
]
