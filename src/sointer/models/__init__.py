"""Structured models to explain: classifiers whose labels depend on one another, and segmenters of images."""

from sointer.models.cache import fit_or_load
from sointer.models.deep_value import DeepValueNetwork
from sointer.models.image_value import ImageDeepValueNetwork
from sointer.models.spen import SPEN
from sointer.models.unet import UNet

__all__ = ["SPEN", "DeepValueNetwork", "ImageDeepValueNetwork", "UNet", "fit_or_load"]
