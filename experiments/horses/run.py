"""Explaining single pixels of segmented horses: results, figures and the page, all from one command.

    python experiments/horses/run.py                        # all studies: an hour and a half on one core
    python experiments/horses/run.py planted --case flood   # one study, only cases with this value
    python experiments/horses/run.py --list                 # which cases are left to run
    python experiments/horses/run.py --pages                # only figures and the page, from the results there are
    python experiments/horses/run.py --smoke --out /tmp/x   # generated images, seconds, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again.
With --shard 0/2 and --shard 1/2 two processes share the work; --pages then gathers what both have found.
Trained segmenters are kept in SOINTER_CACHE (~/.cache/sointer). The horses come from SOINTER_DATA.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "frame")]

from command import OnePage, run_studies  # noqa: E402
from opening import opening  # noqa: E402

NAMES = ("planted", "segmenters", "large", "speed")


def main() -> int:
    # One thread, so that seconds mean the same for every method.
    return run_studies(__doc__, NAMES, HERE, one_page=OnePage("horses", opening), n_threads=1)


if __name__ == "__main__":
    sys.exit(main())
