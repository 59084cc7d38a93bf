"""The command `sointer`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sointer._version import __version__
from sointer.errors import SointerError, require_extra

if TYPE_CHECKING:
    import typer

HELP = """Explain one output of a model that predicts many.

Examples:

  sointer demo                      writes to the folder sointer-demo

  sointer demo --out /tmp/d --seed 1

  sointer demo --quick --quiet      a smaller run; only the table is printed
"""
INTERRUPTED = 130


def main() -> None:
    """Run the command; expected errors are one line on stderr and exit code 1."""
    try:
        require_extra("typer", "demo")
        build_app()()
    except SointerError as exc:
        print(f"error: {exc}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)


def build_app() -> typer.Typer:
    """The command line, which needs typer only from here on."""
    import typer

    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"sointer {__version__}")
            raise typer.Exit

    @app.callback(help=HELP)
    def root(
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Print the version and exit."
        ),
    ) -> None:
        pass

    @app.command()
    def demo(
        out: Path = typer.Option(Path("sointer-demo"), "--out", "-o", help="Folder for the picture and the page."),
        seed: int = typer.Option(0, "--seed", min=0, help="The same seed gives the same explanations."),
        quick: bool = typer.Option(False, "--quick", help="Less data and training: about half a minute."),
        quiet: bool = typer.Option(False, "--quiet", "-q", help="Print the table only."),
    ) -> None:
        """Which pixels of a digit decide each segment of a display?

        Needs no download. The table goes to standard output, progress to standard error.
        """
        # Ctrl-C and expected errors are turned into exit codes here, before typer gives them its own.
        try:
            show_demo(out, seed, quick, quiet)
        except SointerError as exc:
            typer.echo(f"error: {exc}", err=True)
            raise typer.Exit(1) from exc
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(INTERRUPTED) from None

    return app


def show_demo(out: Path, seed: int, quick: bool, quiet: bool) -> None:
    """Run the demo and print what it found."""
    from sointer.demo import run_demo

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    result = run_demo(out, random_state=seed, quick=quick, tell=tell, progress=False if quiet else None)
    tell("")
    print(result.table(), flush=True)
    tell(f"\nDone in {result.seconds:.0f} s. Open the page in a browser:")
    tell(f"  page     {result.page}\n  picture  {result.figure}")


if __name__ == "__main__":
    main()
