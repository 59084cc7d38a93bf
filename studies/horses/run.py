"""Explaining single pixels of segmented horses: results, figures and the page, all from one command.

    python -m studies.horses.run                        # all studies: an hour and a half on one core
    python -m studies.horses.run planted --case flood   # one study, only cases with this value
    python -m studies.horses.run --list                 # which cases are left to run
    python -m studies.horses.run --pages                # only figures and the page, from the results there are
    python -m studies.horses.run --smoke --out /tmp/x   # generated images, seconds, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again.
With --shard 0/2 and --shard 1/2 two processes share the work; --pages then gathers what both have found.
Trained segmenters are kept in SOINTER_CACHE (~/.cache/sointer). The horses come from SOINTER_DATA.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.frame.command import OnePage, run_studies
from studies.horses.opening import opening

HERE = Path(__file__).parent
NAMES = ("planted", "segmenters", "large", "speed")


def main() -> int:
    # One thread, so that seconds mean the same for every method.
    return run_studies(__doc__, NAMES, HERE, one_page=OnePage("horses", opening), n_threads=1)


if __name__ == "__main__":
    sys.exit(main())
