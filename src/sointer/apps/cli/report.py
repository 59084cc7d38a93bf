"""`sointer report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sointer.apps.cli.console import (
    DataPath,
    Device,
    ExplainerPath,
    Force,
    Headers,
    IdColumn,
    Json,
    K,
    Method,
    OptionalModelSpec,
    Quiet,
    Targets,
    TextColumn,
    Verbose,
    as_k,
    check_parent,
    refuse_existing,
    running,
)


def report(
    explainer: ExplainerPath,
    data: DataPath,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.", show_default=False)],
    target: Targets = None,
    rows: Annotated[int | None, typer.Option("--rows", "-n", min=1, help="Most rows that are shown.")] = None,
    k: K = None,
    title: Annotated[str | None, typer.Option("--title", help="The title of the page.")] = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    model: OptionalModelSpec = None,
    method: Method = None,
    device: Device = "cpu",
    header: Headers = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a page for a colleague: one HTML file that works offline.

    With --model it explains what the model predicts, and says how often the model confirms what was selected;
    without, it explains what is expected of the model. Masks of images need the model.

    \b
    Examples:
      sointer report why/ --data X.csv --out why.html
      sointer report why/ --data X.csv --model model:predict --target games --title "Why games?" --out why.html
    """
    with running(quiet=quiet, verbose=verbose, as_json=as_json) as console:
        from sointer.apps.cli import early

        refuse_existing(out, force)
        check_parent(out)
        early.check_explainer(explainer, target)
        early.check_data(data)
        early.check_model(model)

        from sointer.apps.cli.inputs import open_explainer, read_ids, read_targets, read_to_explain
        from sointer.errors import InputError

        opened = open_explainer(explainer, console, model, headers=header, method=method, text=text, device=device)
        of_sequences = opened.sequences_ is not None
        if of_sequences and target and target != ["all"]:
            raise InputError("--target: on the page of sequences every label can be chosen; leave it out.")
        if of_sequences and id_column is not None:
            raise InputError("--id is not for sequences; leave it out.")
        masks = not of_sequences and opened.outputs_.shape is not None
        settings: dict[str, Any] = {
            "targets": None if of_sequences else read_targets(target, opened.output_names_, masks=masks),
            "n_samples": rows,
            "k": as_k(k),
            "title": title,
            "sample_names": None if id_column is None else read_ids(data, id_column),
        }
        given = {name: value for name, value in settings.items() if value is not None}
        X = read_to_explain(data, opened, text)
        console.say("writing the page ...")
        path = opened.report(X, out, **given)
        size = path.stat().st_size
        console.result(f"wrote {path} ({size / 1e6:.1f} MB)", {"report": str(path), "bytes": size})
