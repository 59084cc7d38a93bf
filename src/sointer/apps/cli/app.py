"""All commands in one, and `sointer demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sointer._support import __version__
from sointer.apps.cli.console import Json, Quiet, Seed, Verbose, running
from sointer.apps.cli.evaluate import evaluate
from sointer.apps.cli.explain import explain, report
from sointer.apps.cli.fit import fit
from sointer.apps.cli.info import info
from sointer.apps.cli.serve import serve


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pages.")] = Path("sointer-demo"),
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Less data and training: about half a minute.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Explain two models: why a loan gets a second look, and which pixels light a segment.

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


HELP = """Explain one output of a model that predicts many: which few features decided it?

Fit once, on data and the model; then explain as many rows as you like, with one query of the model per row.

\b
Examples:
  sointer demo --quick                                            see what it does, in half a minute
  sointer fit --model model:predict --data X.csv --out why/       learn to explain predict() in model.py
  sointer info why/                                               what it explains, and how well
  sointer explain why/ --data new.csv --target games --out -      the features that decided "games"
  sointer evaluate why/ --model model:predict --data X.csv        how faithful it is
  sointer report why/ --data X.csv --out why.html                 a page for a colleague

\b
Exit codes: 0 done; 1 failed (the last line says why); 2 wrong usage; 3 fidelity below --at-least;
130 stopped by Ctrl-C; 141 output closed by its reader.
"""


def build_app() -> typer.Typer:
    """The command line."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback(help=HELP)(root)
    for command in (demo, fit, explain, evaluate, report, info, serve):
        app.command()(command)
    return app


def show_version(wanted: bool) -> None:
    """Print the version, and end, if it was asked for."""
    if wanted:
        typer.echo(f"sointer {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What comes before any command."""
