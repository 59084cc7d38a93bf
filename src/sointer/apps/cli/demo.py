"""`sointer demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sointer.apps.cli.console import Json, Quiet, Seed, Verbose, running


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture and the page.")] = Path(
        "sointer-demo"
    ),
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Less data and training: about half a minute.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Which pixels of a digit decide each segment of a display?

    Trains a model on handwritten digits, explains it, and writes a picture and a page to click through. Needs no
    download. The table goes to standard output, progress to standard error.

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
        console.result(result.table(), result.to_json())
        console.say(f"\nDone in {result.seconds:.0f} s. Open the page in a browser:")
        console.say(f"  page     {result.page}\n  picture  {result.figure}")
