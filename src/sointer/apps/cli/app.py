"""All commands in one."""

from __future__ import annotations

from typing import Annotated

import typer

from sointer._support.version import __version__
from sointer.apps.cli.demo import demo
from sointer.apps.cli.evaluate import evaluate
from sointer.apps.cli.explain import explain
from sointer.apps.cli.fit import fit
from sointer.apps.cli.info import info
from sointer.apps.cli.report import report
from sointer.apps.cli.serve import serve

HELP = """Explain one output of a model that predicts many: which few features decided it?

First fit, once, on data and the model; then explain as many rows as you like without querying the model again.

\b
Examples:
  sointer demo --quick                                            see what it does, in half a minute
  sointer fit --model model:predict --data X.csv --out why/       learn to explain predict() in model.py
  sointer info why/                                               what it explains, and how well
  sointer explain why/ --data new.csv --target games --out -      the features that decided "games"
  sointer evaluate why/ --model model:predict --data X.csv        can it be trusted?
  sointer report why/ --data X.csv --out why.html                 a page for a colleague

\b
Exit codes: 0 done; 1 failed, the last line says why; 2 wrong usage; 3 fidelity below --at-least;
130 stopped by Ctrl-C; 141 the reader of the output closed it.
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
