"""`sointer explain`, and `sointer report`: the same as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sointer._support.files import check_file_place, check_readable
from sointer.apps.cli.console import (
    Console,
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
    check_explainer,
    check_explanations,
    check_model,
    nouns,
    read_positions,
    refuse_existing,
    running,
)
from sointer.errors import InputError

STDOUT = Path("-")


def explain(
    explainer: ExplainerPath,
    data: DataPath,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help=".parquet, .csv or .jsonl; - is standard output, as CSV.", show_default=False),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="OUTPUT",
            help="An output by name or number (masks: a pixel such as 12,20; sequences: a token such as 3), or all; "
            "repeatable.",
        ),
    ] = None,
    k: K = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    model: OptionalModelSpec = None,
    query: Annotated[
        bool,
        typer.Option("--query/--no-query", help="Query the model once per row, and explain what it predicts."),
    ] = True,
    refine: Annotated[
        int,
        typer.Option("--refine", min=0, metavar="N", help="Up to N extra queries per row, to confirm selections."),
    ] = 0,
    verify: Annotated[
        int, typer.Option("--verify", min=0, metavar="N", help="Query the model to confirm the first N rows.")
    ] = 0,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records",
            metavar="FILE.jsonl",
            help="Also write records, with which explanations can be checked later.",
        ),
    ] = None,
    method: Method = None,
    device: Device = "cpu",
    header: Headers = None,
    chunk_rows: Annotated[int | None, typer.Option("--chunk-rows", min=1, help="Rows read at a time.")] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List the features that decided an output, for every row.

    The file may be of any size. Writes one line for each row and selected feature: sample, target, value,
    value_source, rank, feature, feature_value, score (relevance, without a sign). Rows that need no feature have no
    line. With --model, each row is sent to the model once and the value is its prediction; without, the value is what
    the explainer expects. --refine and --verify need the model.

    Where available, lines also have: needed (false for a feature that is selected only because of a large --k), effect
    (which way it pushes the output, and how far, in the output's unit or the probability of the label) and locality
    (see sointer info).

    \b
    Examples:
      sointer explain why/ --data new.parquet --target games --model model:predict --out why.parquet
      sointer explain why/ --data new.csv --target all --k 3 --out - | head
      sointer explain why/ --data sentences.jsonl --target 3 --model model:tagger --out why.csv
      sointer explain why/ --data new.csv -t games --model model:predict --refine 25 --verify 100 --out why.csv
    """
    with running(quiet=quiet, verbose=verbose, as_json=as_json) as console:
        if out != STDOUT:
            refuse_existing(out, force)
            check_file_place(out)
        for option, wanted in (("--refine", refine), ("--verify", verify)):
            if wanted and model is None:
                raise InputError(f"{option} queries the model; name it with --model, as for sointer fit.")
        if records is not None:
            if records.suffix.lower() != ".jsonl":
                raise InputError(f"--records {records}: expected a name that ends in .jsonl, other than --out.")
            if records == out:
                raise InputError(f"--records and --out are both {out}; give two names.")
            refuse_existing(records, force)
            check_file_place(records)
        check_explanations(out)
        check_explainer(explainer, target)
        check_readable(data)
        check_model(model)

        from sointer._support.validation import some
        from sointer.apps.cli.inputs import open_explainer, read_targets
        from sointer.io.stream import stream_explain

        opened = open_explainer(explainer, console, model, headers=header, method=method, text=text, device=device)
        if opened.sequences_ is not None:
            for option, given in (("--id", id_column), ("--refine", refine)):
                if given:
                    raise InputError(f"{option} is not for sequences; leave it out.")
            positions = read_positions(target)
            options = {"k": as_k(k), "query": query, "chunk_rows": chunk_rows, "verify": verify, "records": records}
            explain_sequences(console, opened.sequences_, data, out, positions, options)
            return
        if not target and len(opened.targets_) > 1:
            names = some([opened.output_names_[t] for t in opened.targets_])
            raise InputError(f"--target is missing; give one of {names}, or all.")
        targets = read_targets(target, opened.output_names_, masks=opened.outputs_.shape is not None)
        settings: dict[str, Any] = {
            "target": "all" if targets is None else targets,
            "k": as_k(k),
            "query": query,
            "refine": refine,
            "text_column": text,
        }
        done = stream_explain(
            opened,
            data,
            destination(out, console),
            chunk_rows=chunk_rows,
            progress=console.progress,
            id_column=id_column,
            verify=verify,
            records=records,
            **settings,
        )
        if model is None or not query:
            instead = "name it with --model" if model is None else "leave out --no-query"
            console.say(f"values are expected ones: the model was not queried; {instead} to explain what it predicts")
        print_summary(console, done, out, records, nouns(opened), verify)


def explain_sequences(
    console: Console,
    explainer: Any,
    data: Path,
    out: Path,
    positions: list[int] | None,
    options: dict[str, Any],
) -> None:
    """The tokens behind the labels of sequences, one record for each."""
    from sointer.io.sequences import stream_sequences

    done, n_short = stream_sequences(
        explainer,
        data,
        destination(out, console),
        positions=positions,
        progress=console.progress,
        **options,
    )
    if n_short:
        console.warn(f"{n_short:,} of {done.n_rows:,} sequences have no token {positions}; they were left out")
    if explainer.black_box_ is None or not options["query"]:
        console.say("values are expected ones: the model was not queried")
    print_summary(console, done, out, options["records"], ("sequences", "tokens"), options["verify"])


def destination(out: Path, console: Console) -> Any:
    """Where records go: a Parquet file by its name, text for everything else."""
    from sointer.io.writers import TextWriter

    if out == STDOUT:
        return TextWriter(console.binary, as_json=console.as_json)
    kind = out.suffix.lower()
    return TextWriter(out, as_json=kind == ".jsonl") if kind in (".csv", ".jsonl") else out


def print_summary(
    console: Console, done: Any, out: Path, records: Path | None, named: tuple[str, str], n_verified: int
) -> None:
    """How much was written, how fast, and whether the model agrees."""
    samples, units = named
    queried = f", querying the model with {done.n_queries:,}" if done.n_queries else ""
    text = (
        f"explained {done.n_rows:,} {samples} in {done.seconds:.1f} s ({done.rows_per_second:,.0f} a second){queried}; "
        f"{done.n_records:,} records in {'standard output' if out == STDOUT else out}"
    )
    if done.n_without:
        text += f"; none of {done.n_without:,} explanations in which no {units.removesuffix('s')} is needed"
    if records is not None:
        text += f"; one for each explanation, to check it later, in {records}"
    if done.fidelity is not None:
        same = f"the model predicts the same from the selected {units} in {done.fidelity:.1%} of cases"
        text += f"\non the first {min(n_verified, done.n_rows):,} {samples}, {same}"
        text += " (a mask can do that by its shape alone: sointer evaluate gives J)" if samples == "images" else ""
    metadata = {
        "out": str(out),
        "n_rows": done.n_rows,
        "n_records": done.n_records,
        "n_without": done.n_without,
        "n_queries": done.n_queries,
        "seconds": round(done.seconds, 3),
        "fidelity": done.fidelity,
        "records": None if records is None else str(records),
    }
    if out == STDOUT:
        console.say(text)
    else:
        console.result(text, metadata)


def report(
    explainer: ExplainerPath,
    data: DataPath,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.", show_default=False)],
    target: Targets = None,
    rows: Annotated[int | None, typer.Option("--rows", "-n", min=1, help="Maximum number of rows shown.")] = None,
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
    """Write a report: one HTML file that works offline.

    With --model, it explains the model's predictions and says how often the model confirms the explanations; without,
    it explains expected values. Masks of images need the model.

    \b
    Examples:
      sointer report why/ --data X.csv --out why.html
      sointer report why/ --data X.csv --model model:predict --target games --title "Why games?" --out why.html
    """
    with running(quiet=quiet, verbose=verbose, as_json=as_json) as console:
        refuse_existing(out, force)
        check_file_place(out, is_page=True)
        check_explainer(explainer, target)
        check_readable(data)
        check_model(model)

        from sointer.apps.cli.inputs import open_explainer, read_ids, read_targets, read_to_explain

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
