"""`sointer serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from sointer._support.files import check_file_place, check_readable
from sointer.apps.cli.console import (
    Device,
    ExplainerPath,
    Headers,
    Method,
    OptionalModelSpec,
    Quiet,
    TextColumn,
    Verbose,
    check_explainer,
    check_model,
    running,
)
from sointer.errors import InputError

N_ROWS_SHOWN = 200


def serve(
    explainer: ExplainerPath,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 is all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 picks a free port.")] = 8000,
    data: Annotated[
        Path | None,
        typer.Option("--data", "-d", metavar="FILE", help="Rows to pick from on the page, visible to all its users."),
    ] = None,
    text: TextColumn = None,
    model: OptionalModelSpec = None,
    method: Method = None,
    device: Device = "cpu",
    header: Headers = None,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="Maximum number of rows per request.")] = 1000,
    max_body_bytes: Annotated[int, typer.Option("--max-body-bytes", min=1, help="Maximum size of a request.")] = 2**22,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, help="Threads that explain.", show_default="processors, at most 4"),
    ] = None,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Requests that may wait; more get 429.")] = 64,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Seconds for a request to arrive, and to be answered.")
    ] = 30.0,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with a secret that every request must carry, as 'Authorization: Bearer ...'.",
            show_default="the variable SOINTER_TOKEN, if it is set",
        ),
    ] = None,
    query_budget: Annotated[
        int | None, typer.Option("--query-budget", min=0, help="Maximum number of samples sent to the model.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="FILE.jsonl", help="Append a record of every explanation to this file."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Explain over HTTP, with a page to try it.

    \b
    Examples:
      sointer serve why/                       then open http://127.0.0.1:8000
      sointer serve why/ --port 9000 --data X.csv --model model:predict
    """
    with running(quiet=quiet, verbose=verbose) as console:
        check_explainer(explainer)
        if data is not None:
            check_readable(data)
        check_model(model)
        if records is not None:
            check_file_place(records)

        from sointer.apps.cli.inputs import open_explainer, read_to_explain
        from sointer.apps.serve import Limits, run

        threads = {} if concurrency is None else {"concurrency": concurrency}
        limits = Limits(max_body_bytes=max_body_bytes, max_rows=max_rows, queue=queue, timeout=timeout, **threads)
        opened = open_explainer(explainer, console, model, headers=header, method=method, text=text, device=device)
        if query_budget is not None:
            if opened.black_box_ is None:
                raise InputError("--query-budget is for the model, and there is none; give --model too.")
            opened.black_box_.reset_budget(query_budget)
        examples = None if data is None else read_to_explain(data, opened, text, N_ROWS_SHOWN)
        name = explainer.resolve().name
        token = os.environ.get("SOINTER_TOKEN") if token_file is None else _read_token(token_file)
        settings: dict[str, Any] = {"limits": limits, "token": token, "records": records, "quiet": quiet}
        run(opened, host=host, port=port, name=name, examples=examples, **settings)


def _read_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read --token-file {path}: {getattr(error, 'strerror', None) or error}.") from None
