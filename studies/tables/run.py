"""Models of real tables: do the best k features keep the predictions, and does removing them change these?

    python -m studies.tables.run                        # an hour on one core; emotions and scene from $SOINTER_DATA
    python -m studies.tables.run --pages                # only figure and page, from the results there are
    python -m studies.tables.run --smoke --out /tmp/x   # a handful of cases, to see that all of it works

Cases that have a result are not run again: delete a line of results/tables.jsonl to repeat it, or give --again.
With --case emotions only cases that hold this value are run, with --list the cases left to run are shown.
With --shard 0/2 and --shard 1/2 two processes share the work; --pages then gathers what both have found.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.frame.command import run_studies

HERE = Path(__file__).parent
NAMES = ("tables", "structure")


def main() -> int:
    # One thread, so that seconds mean the same for every method and size.
    return run_studies(__doc__, NAMES, HERE, n_threads=1)


if __name__ == "__main__":
    sys.exit(main())
