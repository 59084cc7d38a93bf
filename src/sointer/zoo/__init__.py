"""Problems with known truth, data sets, and models to explain."""

from sointer.zoo.digits import SEGMENTS, SevenSegmentDigits, load_seven_segment_digits
from sointer.zoo.files import MultiLabelData, SegmentationData
from sointer.zoo.image_models import UNet
from sointer.zoo.image_value import ImageDeepValueNetwork
from sointer.zoo.instancewise import INSTANCEWISE_PROBLEMS, switching, syn, syn_model
from sointer.zoo.loaders import (
    load_bibtex,
    load_emotions,
    load_enron,
    load_imdb,
    load_ohsumed,
    load_scene,
    load_weizmann_horses,
)
from sointer.zoo.model_base import fit_or_load
from sointer.zoo.planted_segmenters import (
    PLANTED_SEGMENTERS,
    ConvolutionalSegmenter,
    FloodSegmenter,
    LandmarkSegmenter,
    MajoritySegmenter,
    OffsetSegmenter,
    WindowSegmenter,
)
from sointer.zoo.planted_texts import CHAIN_KINDS, PlantedChain, PlantedTexts
from sointer.zoo.problem import Problem, correlated, shuffled, with_decoys
from sointer.zoo.published import PUBLISHED_PROBLEMS, clusters, l2x, lspin
from sointer.zoo.regression import (
    REGRESSION_PROBLEMS,
    LogisticProblem,
    friedman1,
    friedman2,
    logistic_regressions,
    mechanics,
)
from sointer.zoo.segmenter import PlantedSegmenter, random_scenes
from sointer.zoo.structural import (
    STRUCTURAL_PROBLEMS,
    Structural,
    TruePaths,
    structural,
)
from sointer.zoo.structured_models import SPEN, DeepValueNetwork
from sointer.zoo.synthetic import (
    ALL_PROBLEMS,
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
    partly_mediated,
)
from sointer.zoo.tetrominoes import TetrominoClassifier, Tetrominoes, tetrominoes

__all__ = [
    "ALL_PROBLEMS",
    "CHAIN_KINDS",
    "INSTANCEWISE_PROBLEMS",
    "PLANTED_SEGMENTERS",
    "PUBLISHED_PROBLEMS",
    "REGRESSION_PROBLEMS",
    "SEGMENTS",
    "SPEN",
    "STRUCTURAL_PROBLEMS",
    "ConvolutionalSegmenter",
    "DeepValueNetwork",
    "FloodSegmenter",
    "ImageDeepValueNetwork",
    "LandmarkSegmenter",
    "LogisticProblem",
    "MajoritySegmenter",
    "MultiLabelData",
    "OffsetSegmenter",
    "PlantedChain",
    "PlantedSegmenter",
    "PlantedTexts",
    "Problem",
    "SegmentationData",
    "SevenSegmentDigits",
    "Structural",
    "TetrominoClassifier",
    "Tetrominoes",
    "TruePaths",
    "UNet",
    "WindowSegmenter",
    "clusters",
    "correlated",
    "energy_e1",
    "energy_e2",
    "fit_or_load",
    "friedman1",
    "friedman2",
    "instancewise_switch",
    "l2x",
    "load_bibtex",
    "load_emotions",
    "load_enron",
    "load_imdb",
    "load_ohsumed",
    "load_scene",
    "load_seven_segment_digits",
    "load_weizmann_horses",
    "logistic_regressions",
    "lspin",
    "mechanics",
    "mediated_and",
    "mediated_categorical",
    "mediated_chain",
    "mediated_continuous",
    "mediated_majority",
    "mediated_xor",
    "paper_e1",
    "paper_e2",
    "partly_mediated",
    "random_scenes",
    "shuffled",
    "structural",
    "switching",
    "syn",
    "syn_model",
    "tetrominoes",
    "with_decoys",
]
