"""Speed, queries and memory, against other packages: results, figures and the page, all from one command.

    python -m studies.speed.run                        # all that is left: an hour on one core
    python -m studies.speed.run peers --case e1-20     # one study, only cases with this value
    python -m studies.speed.run --list                 # which cases are left to run
    python -m studies.speed.run --pages                # only figures and the page, from the results there are
    python -m studies.speed.run --smoke --out /tmp/x   # tiny sizes, seconds, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again. The
model of Bibtex is that of the experiments; trained models are kept in SOINTER_CACHE (~/.cache/sointer).
Run it on a machine that does nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.frame.command import OnePage, run_studies
from studies.speed.bars import closing, opening

HERE = Path(__file__).resolve().parent
NAMES = ("peers", "scaling", "explain", "slow_black_box", "imports")


def main() -> int:
    return run_studies(__doc__, NAMES, HERE, one_page=OnePage("benchmarks", opening, closing), n_threads=1)


if __name__ == "__main__":
    sys.exit(main())
