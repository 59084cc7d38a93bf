"""Images of two or three drawn words, with the strokes of each word."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import distance_transform_edt

HEIGHT, WIDTH = 64, 160
BACKGROUNDS = ("plain", "gradient", "noisy")
FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Oblique")
SIZES = range(12, 23)
MAX_WORDS = 3
NEAR = 3.0
"""Pixels at most this far from a stroke count as near it."""
MARGIN, GAP = 2, 8
"""Least distance in pixels of a word from the border, and of two words: twice NEAR and more, so that no pixel is near
the strokes of both."""
MIN_CONTRAST = 90
NOISE = (8.0, 25.0)
WORDS = """
acid apple autumn bakery basil Berlin bridge butter cabin candle Cairo cedar chess cloud coffee copper daisy
delta Dublin early eagle echo ember exit fable fig flute forest garden ginger glass gold harbour hazel honey
ice index iron ivory jazz jelly joker judge karma kettle kiwi label lemon Lima linen lunar maple market mint
Milan needle noon north oasis ocean olive orbit Oslo paper pearl pilot quartz quiet quilt radio river rose
Rome salt silver spice stone tango tea tiger tulip umbra union urban valley velvet violin walnut water wheat
yacht yellow zebra zero 1984 2047 365 4096 No.7 24/7 50% 9:30 Open Sale Push Taxi Stop Bus-12 Gate-B Room-8
Exit-3
""".split()  # noqa: SIM905


class DrawnWords(NamedTuple):
    """Images and what is known of them."""

    images: NDArray[np.uint8]
    """(n, 3, HEIGHT, WIDTH) RGB."""
    strokes: NDArray[np.bool_]
    """(n, MAX_WORDS, HEIGHT, WIDTH) pixels that the word's ink covers at least by half; none if there is no word."""
    backgrounds: NDArray[np.int64]
    """(n,) places in BACKGROUNDS."""

    @property
    def n_words(self) -> NDArray[np.int64]:
        return np.asarray(self.strokes.any(axis=(2, 3)).sum(axis=1))

    def distances(self) -> NDArray[np.float32]:
        """(n, MAX_WORDS, HEIGHT, WIDTH) of every pixel from the nearest stroke of each word; infinite without one."""
        found = np.full(self.strokes.shape, np.inf, dtype=np.float32)
        for place in np.argwhere(self.strokes.any(axis=(2, 3))):
            found[tuple(place)] = distance_transform_edt(~self.strokes[tuple(place)])
        return found


def draw_words(n: int, rng: np.random.Generator) -> DrawnWords:
    """n images with 2 or 3 words each, at random places, in random sizes, fonts and colours."""
    images = np.empty((n, 3, HEIGHT, WIDTH), dtype=np.uint8)
    strokes = np.zeros((n, MAX_WORDS, HEIGHT, WIDTH), dtype=np.bool_)
    backgrounds = rng.integers(len(BACKGROUNDS), size=n)
    for i in range(n):
        canvas = background(BACKGROUNDS[backgrounds[i]], rng)
        for word, ink in enumerate(place_words(int(rng.integers(2, MAX_WORDS + 1)), rng)):
            colour = contrasting(canvas[:, ink > 0].mean(axis=1), rng)
            canvas += ink * (colour[:, None, None] - canvas)
            strokes[i, word] = ink >= 0.5
        images[i] = canvas.clip(0, 255).round()
    return DrawnWords(images, strokes, backgrounds)


def background(kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """(3, HEIGHT, WIDTH): one colour, a gradient in a random direction, or one colour with noise."""
    first, second = rng.uniform(0, 255, size=(2, 3, 1, 1))
    if kind == "gradient":
        angle = rng.uniform(0, 2 * np.pi)
        rows, columns = np.mgrid[:HEIGHT, :WIDTH]
        along = np.cos(angle) * columns + np.sin(angle) * rows
        share = (along - along.min()) / np.ptp(along)
        return np.asarray(first + share * 0.6 * (second - first))
    noise = rng.normal(scale=rng.uniform(*NOISE), size=(3, HEIGHT, WIDTH)) if kind == "noisy" else 0.0
    return np.asarray(np.broadcast_to(first, (3, HEIGHT, WIDTH)) + noise)


def contrasting(behind: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """A random colour (3,) whose brightness differs enough from that of what is behind."""
    while True:
        colour = rng.uniform(0, 255, size=3)
        if abs(brightness(colour) - brightness(behind)) >= MIN_CONTRAST:
            return colour


def brightness(colour: NDArray[np.float64]) -> float:
    return float(colour @ (0.299, 0.587, 0.114))


def place_words(n: int, rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """The ink of n words, (HEIGHT, WIDTH) from 0 to 1 each, apart from each other."""
    while True:
        placed: list[NDArray[np.float64]] = []
        boxes: list[tuple[int, int, int, int]] = []
        for _ in range(20 * n):
            word, font = str(rng.choice(WORDS)), font_of(str(rng.choice(FONTS)), int(rng.choice(SIZES)))
            left, top, right, bottom = map(int, font.getbbox(word))
            room = WIDTH - 2 * MARGIN - (right - left), HEIGHT - 2 * MARGIN - (bottom - top)
            if min(room) < 0:
                continue
            x, y = (int(MARGIN + rng.integers(space + 1)) for space in room)
            box = (x, y, x + right - left, y + bottom - top)
            if any(overlap(box, other) for other in boxes):
                continue
            sheet = Image.new("L", (WIDTH, HEIGHT))
            ImageDraw.Draw(sheet).text((x - left, y - top), word, fill=255, font=font)
            boxes.append(box)
            placed.append(np.asarray(sheet) / 255)
            if len(placed) == n:
                return placed


def overlap(first: tuple[int, int, int, int], second: tuple[int, int, int, int]) -> bool:
    """Whether two boxes (left, top, right, bottom) are less than GAP apart in both directions."""
    apart = (first[i] - second[j] >= GAP for i, j in ((0, 2), (1, 3)))
    apart_too = (second[i] - first[j] >= GAP for i, j in ((0, 2), (1, 3)))
    return not (any(apart) or any(apart_too))


@cache
def font_of(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font that comes with matplotlib, so that images do not depend on what else is installed."""
    return ImageFont.truetype(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), size)
