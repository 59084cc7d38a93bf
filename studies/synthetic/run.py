"""Everything measured on synthetic data: results, figures and pages, all from one command.

    python -m studies.synthetic.run                        # all studies: hours on two cores
    python -m studies.synthetic.run mediated paths         # some of them
    python -m studies.synthetic.run --pages                # only figures and pages, from the results there are
    python -m studies.synthetic.run --smoke --out /tmp/x   # a handful of cases each, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again.
With --case e1 only cases that hold this value are run, with --list the cases left to run are shown.
With --shard 0/2 and --shard 1/2 two processes share the work; --pages then gathers what both have found.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.frame.command import run_studies

HERE = Path(__file__).parent
NAMES = ("accuracy", "problems", "mediated", "paths", "leakage", "removal", "sensitivity", "explaining_time")


def main() -> int:
    # One thread, so that seconds mean the same for every method and size.
    return run_studies(__doc__, NAMES, HERE, n_threads=1)


if __name__ == "__main__":
    sys.exit(main())
