"""`sointer demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sointer.apps.cli.console import Json, Quiet, Seed, Verbose, running


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pages.")] = Path("sointer-demo"),
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Less data and training: about half a minute.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Why does a loan desk take a second look? Which pixels of a digit light a segment?

    Trains two models, explains them, compares the explanations with Shapley values and others, and writes pages to open
    in a browser. Needs no download. The table of the loan desk goes to standard output, progress to standard error.

    \b
    Examples:
      sointer demo                      writes to the folder sointer-demo
      sointer demo --out /tmp/d --seed 1
      sointer demo --quick --quiet      a smaller run; only the table is printed
    """
    with running(quiet=quiet, verbose=verbose, as_json=as_json) as console:
        from sointer.apps.demo import run_demo

        result = run_demo(out, random_state=seed, quick=quick, tell=console.say, progress=console.progress)
        console.say()
        console.result(result.desk.evaluation.table(), result.to_json())
        console.say(f"\nDone in {result.seconds:.0f} s. Open {result.page} in a browser.")
