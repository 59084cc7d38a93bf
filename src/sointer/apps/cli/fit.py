"""`sointer fit`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sointer._support.files import as_finite, check_readable
from sointer.apps.cli.console import (
    Console,
    DataPath,
    Device,
    Force,
    Headers,
    Json,
    K,
    Method,
    ModelSpec,
    Quiet,
    Seed,
    Targets,
    Verbose,
    as_k,
    check_model,
    check_place,
    how_many,
    nouns,
    refuse_existing,
    running,
)
from sointer.errors import InputError


def fit(
    model: ModelSpec,
    data: DataPath,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the explainer.", show_default=False)],
    k: K = None,
    target: Targets = None,
    query_budget: Annotated[
        int | None, typer.Option("--query-budget", min=1, help="Maximum number of rows sent to the model.")
    ] = None,
    seed: Seed = 0,
    removal: Annotated[
        str,
        typer.Option(
            "--removal",
            metavar="HOW",
            help="What a removed feature becomes: zero, mean, marginal (the values of another row), "
            "conditional (of a similar row), blur (images), or auto.",
        ),
    ] = "auto",
    preset: Annotated[str, typer.Option("--preset", metavar="NAME", help="default, or paper: as published.")] = (
        "default"
    ),
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            help="Folder that stores every output of the model, so that the same command can resume.",
        ),
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            "--rows",
            metavar="NAME",
            help="Training rows in the files: keep (up to 2,000), synthetic, or none.",
        ),
    ] = "keep",
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="COLUMN", help="A column not passed to the model, such as an id; repeatable."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="COLUMN", help="The column of texts, for models of texts.")
    ] = None,
    text_columns: Annotated[
        str | None,
        typer.Option(
            "--text-columns",
            metavar="NAMES",
            help="a,b: columns of free text, for models of the whole table. Default: detected.",
        ),
    ] = None,
    feature_names: Annotated[
        str | None, typer.Option("--feature-names", metavar="NAMES", help="a,b,c or @FILE with one name per line.")
    ] = None,
    output_names: Annotated[
        str | None, typer.Option("--output-names", metavar="NAMES", help="a,b,c or @FILE with one name per line.")
    ] = None,
    output_kind: Annotated[
        str | None,
        typer.Option(
            "--output-kind",
            metavar="KIND",
            help="binary, categorical, probability or continuous; by output: a=probability,b=continuous.",
        ),
    ] = None,
    method: Method = None,
    device: Device = "cpu",
    header: Headers = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Maximum number of rows per call.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Learn to explain a black-box model.

    The model is queried with your rows, unmasked and with features removed. It is not stored in the explainer.

    If the model knows the names of its columns (as a scikit-learn model fitted on a DataFrame), these are used;
    otherwise all that you do not drop.

    \b
    Examples:
      sointer fit --model model:predict --data X.csv --out why/
      sointer fit --model model:forest --method predict_proba --data X.parquet --drop id --out why/
      sointer fit --model model.onnx --data X.npz --k 5 --query-budget 20000 --out why/
      sointer fit --model model:tagger --data sentences.jsonl --out why/     {"tokens": [...]} on each line
      sointer fit --model https://host/v2/models/m --header 'Authorization: Bearer ${TOKEN}' --data X.csv --out why/
    """
    with running(quiet=quiet, verbose=verbose, as_json=as_json) as console:
        refuse_existing(out, force)
        check_place(out, data)
        check_model(model)
        check_readable(data)

        from sointer import BlackBox, SOInter
        from sointer._support.torch_state import resolve_device
        from sointer.apps.cli.inputs import describe, load_model, read_names, read_targets, read_to_fit
        from sointer.config import check_rows

        check_rows(rows)
        resolve_device(device)
        names = read_names(output_names, "--output-names")
        black_box = load_model(model, headers=header, method=method, batch_size=batch_size)
        texts = read_names(text_columns, "--text-columns")
        X, left_out = read_to_fit(data, model=black_box, drop=drop or (), text=text, text_columns=texts)
        console.say(f"{describe(X)} in {data}{_left_out(left_out)}")
        explainer = SOInter(
            black_box,
            k="auto" if k is None else as_k(k),  # type: ignore[arg-type]
            removal=removal,
            preset=preset,  # type: ignore[arg-type]
            feature_names=read_names(feature_names, "--feature-names"),
            output_names=names,
            output_kind=read_kinds(output_kind),  # type: ignore[arg-type]
            text_columns=texts,
            query_budget=query_budget,
            batch_size=None if isinstance(black_box, BlackBox) else batch_size,
            random_state=seed,
            verbose=console.progress,
            device=device,
        )
        started = time.perf_counter()
        targets = read_targets(target, names or getattr(black_box, "output_names", None) or [])
        explainer.fit(X, targets=targets, **({} if checkpoint is None else {"checkpoint": checkpoint}))
        # How much to print is not for the next command to know.
        try:
            explainer.set_params(verbose=None).save(out, rows=rows)
        except OSError as error:
            again = "fit again" if checkpoint is None else f"run the same again, which takes it from {checkpoint}"
            raise InputError(
                f"the explainer could not be written to {out} ({error.__cause__ or error}). Make room, and {again}."
            ) from error
        print_summary(console, explainer, out, time.perf_counter() - started, text)


def read_kinds(text: str | None) -> str | dict[str, str] | None:
    """One kind for all outputs, or kinds by name."""
    if text is None or "=" not in text:
        return text
    return {name.strip(): kind.strip() for name, _, kind in (part.rpartition("=") for part in text.split(","))}


def print_summary(console: Console, explainer: Any, out: Path, seconds: float, text_column: str | None) -> None:
    """What was learned, and what to do next."""
    from sointer.errors import InterruptedFitWarning

    of_sequences = explainer.sequences_ is not None
    labels = [str(label) for label in explainer.outputs_.classes] if of_sequences else []
    metadata = {
        "explainer": str(out),
        **(
            {"labels": labels}
            if of_sequences
            else {"n_features": explainer.n_features_in_, "outputs": explainer.output_names_}
        ),
        "k": explainer.k,
        "n_queries": explainer.n_queries_,
        "held_out_agreement": as_finite(explainer.held_out_agreement_),
        "held_out_skill": explainer.held_out_skill_,
        "seconds": round(seconds, 3),
        "warnings": [str(warning) for warning in console.warned],
    }
    samples, units = nouns(explainer)
    explains = (
        f"{len(labels)} labels of tokens, by the few tokens that keep them"
        if of_sequences
        else f"{len(explainer.targets_)} outputs, by {how_many(explainer.k)} of {explainer.n_features_in_:,} {units}"
    )
    text = (
        f"wrote {out}: explains {explains}\nqueried the model with {explainer.n_queries_:,} {samples} in "
        f"{seconds:.0f} s; {_agreement(explainer)}"
    )
    console.result(text, metadata)
    if any(isinstance(warning, InterruptedFitWarning) for warning in console.warned):
        raise KeyboardInterrupt
    example = "all" if of_sequences else repr(explainer.output_names_[explainer.targets_[0]])
    where = "FILE" if text_column is None else f"FILE --text {text_column!r}"
    console.say(f"next: sointer explain {out} --data {where} --target {example} --out why.parquet")


def _agreement(explainer: Any) -> str:
    """How often what was held out is predicted correctly; of images, beside a rule that sees none."""
    from sointer._support.progress import last_value

    agreement = explainer.held_out_agreement_
    if agreement != agreement:
        return "no outputs were held out to check it on"
    by_rules = None if explainer.sequences_ is not None else last_value(explainer.history_, "held_out_by_rules")
    if by_rules is None:
        return f"{agreement:.1%} of held-out outputs are predicted correctly"
    return (
        f"{agreement:.1%} of held-out mixtures of two images are predicted to follow the right one ({by_rules:.1%} by "
        "a rule that only counts pixels, in all or around the target)"
    )


def _left_out(names: list[str]) -> str:
    if not names:
        return ""
    return f"; not used: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
