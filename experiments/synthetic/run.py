"""Everything measured on synthetic data: results, figures and pages, all from one command.

    python experiments/synthetic/run.py                        # all studies: hours on two cores
    python experiments/synthetic/run.py mediated paths         # some of them
    python experiments/synthetic/run.py --pages                # only figures and pages, from the results there are
    python experiments/synthetic/run.py --smoke --out /tmp/x   # a handful of cases each, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again.
With --shard 0/2 and --shard 1/2 two processes share the work; --pages then gathers what both have found.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402
from study import Study, files_of, read, work  # noqa: E402

import sointer  # noqa: E402

NAMES = ("accuracy", "problems", "mediated", "paths", "leakage", "removal", "sensitivity", "explaining_time")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "studies", nargs="*", metavar="study", help=f"which of {', '.join(NAMES)}; all if none is named"
    )
    parser.add_argument("--smoke", action="store_true", help="a handful of quick cases of each; needs --out")
    parser.add_argument("--out", type=Path, help="write results, pages and images there instead of into the repository")
    parser.add_argument("--again", action="store_true", help="forget the results there are")
    parser.add_argument("--shard", default="0/1", help="i/n: the i-th of n parts, into a file of its own")
    parser.add_argument("--pages", action="store_true", help="run nothing, only make figures and pages")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.studies) - set(NAMES))
    if unknown:
        parser.error(f"no study is called {unknown[0]!r}; there are {', '.join(NAMES)}")
    if arguments.smoke and arguments.out is None:
        parser.error("--smoke needs --out, so that its results do not mix with real ones")
    torch.set_num_threads(1)  # so that seconds mean the same for every method and size
    warnings.simplefilter("ignore", sointer.errors.SointerWarning)
    shard, n_shards = (int(part) for part in arguments.shard.split("/"))
    docs = HERE.parents[1] / "docs"
    folder = arguments.out / "results" if arguments.out else HERE / "results"
    pages = arguments.out / "pages" if arguments.out else docs / "results"
    images = arguments.out / "images" if arguments.out else docs / "images"
    n_failed = 0
    for name in arguments.studies or NAMES:
        study: Study = importlib.import_module(name).STUDY
        results = folder / (f"{name}.jsonl" if n_shards == 1 else f"{name}-shard{shard}.jsonl")
        if arguments.again:
            for file in [results] if n_shards > 1 else files_of(folder, name):
                file.unlink(missing_ok=True)
        if not arguments.pages:
            n_failed += work(study, results, smoke=arguments.smoke, shard=shard, n_shards=n_shards)
        rows = read(folder, name)
        if rows and n_shards == 1:
            pages.mkdir(parents=True, exist_ok=True)
            images.mkdir(parents=True, exist_ok=True)
            (pages / f"{name.replace('_', '-')}.md").write_text(study.page(rows, images))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
