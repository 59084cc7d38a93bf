"""Explaining single pixels of segmented horses: results, figures and the page, all from one command.

    python experiments/horses/run.py                        # all studies: hours on two cores
    python experiments/horses/run.py fidelity --case unet   # one study, only cases with this value
    python experiments/horses/run.py --list                 # which cases are left to run
    python experiments/horses/run.py --pages                # only figures and the page, from the results there are
    python experiments/horses/run.py --smoke --out /tmp/x   # made-up pictures, seconds, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again.
Trained black boxes and fitted explainers are kept in SOINTER_CACHE (~/.cache/sointer), and shared by all studies.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "frame")]

from command import OnePage, run_studies  # noqa: E402
from opening import opening  # noqa: E402

NAMES = ("fidelity", "noise", "removal", "settings", "speed", "scale", "paper")


def main() -> int:
    return run_studies(__doc__, NAMES, HERE, one_page=OnePage("horses", opening))


if __name__ == "__main__":
    sys.exit(main())
