"""Speed, queries and memory, against other packages: results, figures and the page, all from one command.

    python benchmarks/run.py                        # all that is left: an hour on one core
    python benchmarks/run.py peers --case e1-20     # one study, only cases with this value
    python benchmarks/run.py --list                 # which cases are left to run
    python benchmarks/run.py --pages                # only figures and the page, from the results there are
    python benchmarks/run.py --smoke --out /tmp/x   # tiny sizes, seconds, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again. The
model of Bibtex is that of the experiments; trained models are kept in SOINTER_CACHE (~/.cache/sointer).
Run it on a machine that does nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "experiments" / "frame")]

from bars import closing, opening  # noqa: E402
from command import OnePage, run_studies  # noqa: E402

NAMES = ("peers", "scaling", "explain", "slow_black_box", "imports")


def main() -> int:
    return run_studies(__doc__, NAMES, HERE, one_page=OnePage("benchmarks", opening, closing), n_threads=1)


if __name__ == "__main__":
    sys.exit(main())
