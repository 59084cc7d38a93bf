"""`sointer reproduce`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from sointer.apps.cli.console import Console, Json, Quiet, Seed, Verbose, running

STUDIES = {
    "synthetic": "where the truth is known: accuracy, time, sensitivity, removal, paths, leakage (hours)",
    "text": "tags of documents: Bibtex, Enron, wikimovies, against LIME, KernelSHAP and L2X (hours)",
    "instancewise": "relevant features that differ from sample to sample, against every baseline (hours)",
    "tables": "real tables with forests, boosting, chains and networks, against TreeSHAP and others (hours)",
    "horses": "pixels of segmented horses: planted truth, U-Nets, a deep value network (90 minutes)",
}
SMOKE = "smoke"
N_FEATURES, N_ROWS, N_QUERIES = 10, 1000, 2000


def reproduce(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="smoke, or a study from the list.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run the studies behind the published figures.

    Without a name, they are listed.

    smoke runs anywhere, in seconds: the paper's first problem, whose relevant features are known. The others take
    hours and need a checkout of the source, because their settings and results are kept there.

    \b
    Examples:
      sointer reproduce
      sointer reproduce smoke
      sointer reproduce synthetic       from the folder of a checkout
    """
    with running(quiet=quiet, verbose=verbose, as_json=as_json) as console:
        from sointer._support.validation import did_you_mean
        from sointer.errors import InputError

        if study is None:
            listing = {SMOKE: "the paper's problem E1 with 10 features (seconds, runs anywhere)", **STUDIES}
            console.result("\n".join(f"{name:<12} {what}" for name, what in listing.items()), listing)
            console.say("\nAll but smoke need a checkout: git clone, then there: sointer reproduce NAME")
        elif study == SMOKE:
            smoke(console, seed)
        elif study in STUDIES:
            run_study(study)
        else:
            raise InputError(f"there is no study {study!r}. {did_you_mean(study, [SMOKE, *STUDIES])}")


def smoke(console: Console, seed: int) -> None:
    """Fit on a problem whose relevant features are known, and count the rows where exactly those are found."""
    from sointer import SOInter
    from sointer.metrics.ground_truth import exact_match
    from sointer.zoo.synthetic import paper_e1

    problem = paper_e1(N_FEATURES)
    X = problem.sample(N_ROWS, random_state=seed)
    seen, unseen = X[: N_ROWS // 2], X[N_ROWS // 2 :]
    explainer = SOInter(problem, k=4, query_budget=N_QUERIES, random_state=seed, verbose=console.progress).fit(seen)
    shares = {
        explainer.output_names_[t]: exact_match(explainer.explain(unseen, target=t).selected, problem.relevant[t])
        for t in problem.targets
    }
    facts = {"problem": "E1", "n_features": N_FEATURES, "n_queries": explainer.n_queries_, "exact_match": shares}
    told = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    console.result(
        f"E1 with {N_FEATURES} features, {explainer.n_queries_:,} queries: exactly the relevant features were found in "
        f"{told} of {len(unseen)} unseen rows",
        facts,
    )


def run_study(study: str) -> None:
    """Run a study of the checkout that we are in."""
    from sointer.errors import InputError

    script = Path("experiments") / study / "run.py"
    if not script.is_file():
        raise InputError(
            f"the study {study!r} needs a checkout of the source: {script} is not in {Path.cwd()}. Clone the "
            f"repository, go there, and run: make reproduce-{study}"
        )
    raise typer.Exit(subprocess.run([sys.executable, str(script)], check=False).returncode)
