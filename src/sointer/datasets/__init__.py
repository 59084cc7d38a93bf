"""Data to explain models on: synthetic problems with planted truth, seven-segment digits, and public data sets."""

from sointer.datasets.digits import SEGMENTS, SevenSegmentDigits, load_seven_segment_digits
from sointer.datasets.horses import load_weizmann_horses
from sointer.datasets.multilabel import (
    load_bibtex,
    load_emotions,
    load_enron,
    load_imdb,
    load_ohsumed,
    load_scene,
    load_wikimovies,
)
from sointer.datasets.problem import Problem
from sointer.datasets.records import MultiLabelData, SegmentationData
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
    "MultiLabelData",
    "Problem",
    "SegmentationData",
    "SevenSegmentDigits",
    "correlated",
    "energy_e1",
    "energy_e2",
    "instancewise_switch",
    "load_bibtex",
    "load_emotions",
    "load_enron",
    "load_imdb",
    "load_ohsumed",
    "load_scene",
    "load_seven_segment_digits",
    "load_weizmann_horses",
    "load_wikimovies",
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
