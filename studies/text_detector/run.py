"""A text detector on drawn words with known strokes: results, figure and page from one command.

    python -m studies.text_detector.run                        # see the page for the time it takes
    python -m studies.text_detector.run --pages                # only figure and page, from the results there are
    python -m studies.text_detector.run --smoke --out /tmp/x   # a handful of images, to see that all of it works

Needs rapidocr-onnxruntime: pip install 'sointer[ocr,plot]'. Nothing is fetched when it runs.
Cases that have a result are not run again: delete a line of results/text_detector.jsonl to repeat it, or give --again.
With --case Rise only cases that hold this value are run, with --list the cases left to run are shown.
With --shard 0/2 and --shard 1/2 two processes share the work; --pages then gathers what both have found.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.frame.command import run_studies

HERE = Path(__file__).parent
NAMES = ("text_detector",)


def main() -> int:
    # One thread, so that seconds mean the same for every method.
    return run_studies(__doc__, NAMES, HERE, n_threads=1)


if __name__ == "__main__":
    sys.exit(main())
