"""Planted chains: are the tokens selected for a label exactly those that it was passed on by?

python -m studies.usaddress.chains --queries 5000 --seeds 11 12
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import numpy as np

from sointer import SequenceExplainer
from sointer.zoo import CHAIN_KINDS, PlantedChain

MAX_LINKS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--kinds", nargs="+", default=list(CHAIN_KINDS), choices=CHAIN_KINDS)
    args = parser.parse_args()
    for seed in args.seeds:
        for kind in args.kinds:
            chain = PlantedChain(kind, seed=seed)
            started = time.process_time()
            explainer = SequenceExplainer(chain, query_budget=args.queries, random_state=seed)
            explainer.fit(chain.sequences(2800, (4, 10), seed=seed + 100))
            seconds = time.process_time() - started
            why = explainer.explain(chain.sequences(60, 9, seed=seed + 200))
            by_links: dict[int, list[bool]] = defaultdict(list)
            nearest = []
            for i in range(len(why)):
                truth = chain.truth(why.sequences[why.sample[i]], int(why.position[i]))
                chosen = set(why.selected[i][why.selected[i] >= 0].tolist())
                by_links[len(truth) - 1].append(chosen == truth)
                near = np.argsort(np.abs(np.arange(9) - why.position[i]), kind="stable")[: len(truth)]
                nearest.append(set(near.tolist()) == truth)
            few = np.concatenate([by_links[links] for links in by_links if links <= MAX_LINKS])
            every = np.concatenate(list(by_links.values()))
            shown = {links: f"{np.mean(by_links[links]):.2f} of {len(by_links[links])}" for links in sorted(by_links)}
            print(
                f"{kind} seed {seed}, {args.queries} queries, window {explainer.window_}, fit {seconds:.0f} s: exact "
                f"{few.mean():.3f} of {len(few)} with at most {MAX_LINKS} links, {every.mean():.3f} of all; nearest "
                f"tokens, size given {np.mean(nearest):.3f}; by links {shown}",
                flush=True,
            )


if __name__ == "__main__":
    main()
