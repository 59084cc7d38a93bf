"""python -m studies: see studies.frame.command."""

import os
import sys

# Before torch is loaded, and for all processes that studies start: seconds mean the same for every method.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if __name__ == "__main__":
    from studies.frame.command import main

    sys.exit(main())
