"""`sointer evaluate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sointer._support.files import check_readable
from sointer.apps.cli.console import (
    UNFAITHFUL,
    Console,
    DataPath,
    Device,
    ExplainerPath,
    Headers,
    Json,
    K,
    Method,
    ModelSpec,
    Quiet,
    Seed,
    Targets,
    TextColumn,
    Verbose,
    as_k,
    check_explainer,
    check_model,
    running,
)
from sointer.errors import InputError


def evaluate(
    explainer: ExplainerPath,
    model: ModelSpec,
    data: DataPath,
    target: Targets = None,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows, drawn at random.")] = 50,
    k: K = None,
    ks: Annotated[
        str | None,
        typer.Option(
            "--ks",
            metavar="SIZES",
            help="Sizes for keep and delete (images: for insert, delete and J, in pixels), such as 3,8,15,30.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="METHODS",
            help="Random, GlobalList, NearestPixels, Rise, Occlusion, Lime, KernelShap, ShapleySampling, TreeShap, "
            "HideAndSeek, Invase, separated by commas; all, or none. Default: all that apply and take seconds.",
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            min=10,
            help="Queries per row that Lime, KernelShap, Rise and Occlusion may send.",
        ),
    ] = 1000,
    at_least: Annotated[
        float | None,
        typer.Option("--at-least", min=0.0, max=1.0, metavar="SHARE", help="Exit code 3 if fidelity is below."),
    ] = None,
    seed: Seed = 0,
    text: TextColumn = None,
    method: Method = None,
    device: Device = "cpu",
    header: Headers = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure how faithful the explanations are, by querying the model.

    For random rows, the features that each method selects are kept and the others removed: the prediction should stay
    (keep). Then the selected ones are removed: it should change (delete). For images, the selected pixels are put into
    images of another label (insert) or replaced by theirs (delete); J measures how much their contents count. For
    sequences, selected tokens are compared with the nearest and with random ones. Lime and KernelShap query the model
    about 1,000 times per row, and HideAndSeek and Invase train networks; --against Random, or none, is fast.

    \b
    Examples:
      sointer evaluate why/ --model model:predict --data X.csv
      sointer evaluate why/ --model model:predict --data X.csv --target games --rows 200 --against Random
      sointer evaluate why/ --model model:forest --data X.csv --against TreeShap,GlobalList --ks 3,8,15
      sointer evaluate why/ --model model:predict --data X.csv --against none --at-least 0.9 --json
    """
    with running(quiet=quiet, verbose=verbose, as_json=as_json) as console:
        check_explainer(explainer, target)
        check_readable(data)
        check_model(model)

        from sointer.apps.cli.inputs import open_explainer, read_targets, read_to_explain
        from sointer.metrics.evaluation import evaluate as compare
        from sointer.metrics.evaluation import evaluate_sequences

        opened = open_explainer(explainer, console, model, headers=header, method=method, text=text, device=device)
        found: Any
        if opened.sequences_ is not None:
            for option, given in (("--target", target), ("--ks", ks), ("--against", against)):
                if given:
                    raise InputError(f"{option} is not for sequences; leave it out.")
            found = evaluate_sequences(
                opened.sequences_, read_to_explain(data, opened), n_rows=rows, k=as_k(k), random_state=seed
            )
            finish(console, found, at_least)
            return
        found = compare(
            opened,
            read_to_explain(data, opened, text),
            targets=read_targets(target, opened.output_names_, masks=opened.outputs_.shape is not None),
            n_rows=rows,
            k=as_k(k),
            ks=read_sizes(ks),
            against=read_names(against),
            n_samples=samples,
            random_state=seed,
            tell=lambda line: console.say(f"{line} ..."),
        )
        finish(console, found, at_least)


def finish(console: Console, found: Any, at_least: float | None) -> None:
    """Print the comparison, and say by the exit code whether it is good enough."""
    console.say()
    console.result(found.table(), found.to_json())
    console.detail(f"the comparison queried the model with {found.n_queries:,} rows")
    if at_least is not None and getattr(found.methods[0], "insert", None):
        console.say("--at-least judges fidelity only, which a mask can keep by its shape alone: see J above")
    if at_least is not None and found.fidelity < at_least:
        console.say(f"fidelity {found.fidelity:.3f} is below {at_least:g}")
        raise typer.Exit(UNFAITHFUL)


def read_names(text: str | None) -> list[str] | None:
    """Names between commas; "none" for no name."""
    if text is None:
        return None
    return [] if text.strip().lower() == "none" else [name.strip() for name in text.split(",")]


def read_sizes(text: str | None) -> list[int] | None:
    """Whole numbers between commas."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--ks must be whole numbers between commas, such as 3,8,15, got {text!r}.") from None
