"""The command `sointer`."""

from __future__ import annotations

import io
import sys

from sointer.errors import SointerError, require_extra

INTERRUPTED = 130


def main() -> None:
    """Run the command; what goes wrong before a command runs is one line on stderr, too."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may hold characters that the terminal has not
            stream.reconfigure(errors="backslashreplace")
    try:
        require_extra("typer", "cli")
        from sointer.apps.cli.app import build_app

        build_app()(prog_name="sointer")
    except SointerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
