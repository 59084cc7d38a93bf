"""`sointer info`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sointer.apps.cli.console import ExplainerPath, Json, Verbose, how_many, running

MAX_NAMES, MAX_LOCALITIES = 8, 4


def info(explainer: ExplainerPath, as_json: Json = False, verbose: Verbose = False) -> None:
    """Describe an explainer, and how well it learned.

    \b
    Examples:
      sointer info why/
      sointer info why/ --verbose              all names, and the history of the training
      sointer info why/ --json | jq .outputs
    """
    with running(verbose=verbose, as_json=as_json) as console:
        from sointer.io.storage import DAMAGE, SEQUENCES, storage_of

        storage = storage_of(explainer)
        of_sequences = storage is SEQUENCES
        saved = storage.peek(explainer, whole=True)
        try:
            metadata = describe_sequences(saved, explainer) if of_sequences else describe(saved, explainer)
            text = sequences_as_text(metadata, verbose) if of_sequences else as_text(metadata, verbose)
        except DAMAGE as error:
            from sointer.apps.cli.inputs import open_explainer

            open_explainer(explainer, console)  # says what is damaged, unless nothing is made from it
            raise storage.damaged(explainer, error) from error
        console.result(text, metadata)


def describe(saved: dict[str, Any], path: Path) -> dict[str, Any]:
    """Everything worth knowing, from metadata alone, for which torch need not be loaded."""
    form, outputs, parameters = saved["input_format"], saved["outputs"], saved["parameters"]
    names, kinds, features = outputs["names"], outputs["kinds"], form["feature_names"]
    of_images, of_masks = form.get("image") is not None, outputs.get("shape") is not None
    quality = list(zip(saved["output_agreement"], saved["output_skill"], strict=True))
    return {
        "explainer": str(path),
        "sointer": saved["sointer"],
        "bytes": bytes_in(path),
        "takes": "images" if of_images else {"csr": "sparse rows", "text": "texts"}.get(form["kind"], "rows"),
        "features": len(features) if of_images else features,
        "groups": group_names(saved["groups"], features),
        "outputs": outputs["shape"] if of_masks else names,
        "output_kind": kinds[0] if len(set(kinds)) == 1 else "mixed",
        "targets": None if of_masks else [names[target] for target in saved["targets"]],
        "k": parameters["k"],
        "removal": saved["removal"]["name"],
        "preset": parameters["preset"],
        "structured": parameters["structured"],
        "random_state": saved["random_state"],
        "n_queries": saved["n_queries"],
        "held_out_agreement": saved["held_out_agreement"],
        "held_out_skill": saved["held_out_skill"],
        "output_quality": None
        if of_masks
        else [
            {"output": names[t], "kind": kinds[t], "agreement": quality[t][0], "skill": quality[t][1]}
            for t in saved["targets"]
        ],
        "localities": saved.get("localities"),
        "history": saved["history"],
    }


def bytes_in(path: Path) -> int:
    """The size of all files of an explainer."""
    return sum(file.stat().st_size for file in path.iterdir() if file.is_file())


def group_names(saved: dict[str, Any], features: list[str]) -> list[str] | None:
    """The names of the groups that are selected; None where these are the features themselves."""
    if "unit_names" in saved:
        return None if saved["unit_names"] == features else list(saved["unit_names"])
    from sointer.masking.build import restore_groups

    return list(restore_groups(saved).unit_names)


def describe_sequences(saved: dict[str, Any], path: Path) -> dict[str, Any]:
    """What is worth knowing of an explainer of sequences, from metadata alone."""
    agreement, skill = saved["held_out"]
    return {
        "explainer": str(path),
        "sointer": saved["sointer"],
        "bytes": bytes_in(path),
        "takes": "sequences",
        "output_kind": saved["outputs"]["kind"],
        "labels": list(saved["outputs"]["classes"]),
        "n_tokens": len(saved["tokens"]),
        **{name: saved["parameters"][name] for name in ("k", "level")},
        **{name: saved[name] for name in ("window", "random_state", "n_queries")},
        "held_out_agreement": agreement,
        "held_out_skill": skill,
        "history": saved["history"],
    }


def sequences_as_text(metadata: dict[str, Any], verbose: bool) -> str:
    """The same for people."""
    labels = [_short(label) for label in metadata["labels"]]
    size = "as few tokens as keep it" if metadata["k"] == "auto" else f"{metadata['k']} tokens"
    lines = {
        "explains": f"the {metadata['output_kind']} of every token: {listed(labels, verbose)}",
        "by": f"{size}, of sequences with any tokens ({metadata['n_tokens']:,} were in fit)",
        "a label sees": f"{metadata['window']} tokens on either side, others through the labels between",
        "takes": metadata["takes"],
        "queries": f"{metadata['n_queries']:,} sequences in fit",
        "agreement": quality_line(metadata, "labels"),
        "settings": f"level {metadata['level']:g}, seed {metadata['random_state']}",
        "on disk": disk_line(metadata),
    }
    return "\n".join(f"{name:<13} {value}" for name, value in lines.items())


def quality_line(metadata: dict[str, Any], noun: str) -> str:
    """How well it was learned; of images, beside a rule that sees none."""
    from sointer._support.progress import last_value

    agreement, skill = metadata["held_out_agreement"], max(0.0, metadata["held_out_skill"])
    if agreement is None or agreement != agreement:
        return f"not known: no {noun} were held out"
    by_rules = last_value(metadata["history"], "held_out_by_rules")
    if by_rules is not None:
        return (
            f"{agreement:.1%} of held-out mixtures of two images predicted to follow the right one, {by_rules:.1%} by "
            f"a rule that only counts pixels, in all or around the target; {skill:.0%} of its errors are avoided"
        )
    return (
        f"{agreement:.1%} of held-out {noun} predicted correctly; "
        f"{skill:.0%} of the errors of predicting the most common value are avoided"
    )


def disk_line(metadata: dict[str, Any]) -> str:
    """How large it is, and what wrote it."""
    return f"{metadata['bytes'] / 1e6:.1f} MB, saved by sointer {metadata['sointer']}"


def as_text(metadata: dict[str, Any], verbose: bool) -> str:
    """The same for people."""
    features, outputs, targets = metadata["features"], metadata["outputs"], metadata["targets"]
    n_features = features if isinstance(features, int) else len(features)
    of_masks, takes = targets is None, metadata["takes"]
    units = "words" if takes == "texts" else "features"
    lines = {
        "explains": f"masks of {outputs[0]} x {outputs[1]} pixels ({metadata['output_kind']})"
        if of_masks
        else f"{len(targets)} of {len(outputs)} outputs ({metadata['output_kind']}): {listed(targets, verbose)}",
        "by": f"{how_many(metadata['k'])} of {n_features:,} "
        + ("pixels" if isinstance(features, int) else f"{units}: {listed(features, verbose)}"),
        "groups": "" if metadata["groups"] is None else listed(metadata["groups"], verbose),
        "takes": takes,
        "removal": metadata["removal"],
        "queries": f"{metadata['n_queries']:,} {takes} in fit",
        "agreement": quality_line(metadata, "outputs"),
        "settings": f"preset {metadata['preset']}, seed {metadata['random_state']}"
        + ("" if metadata["structured"] else ", each output alone"),
        "on disk": disk_line(metadata),
    }
    text = [f"{name:<13} {value}" for name, value in lines.items() if value]
    text += output_lines(metadata, verbose)
    if verbose:
        text += [
            "",
            *(", ".join(f"{name} {_short(value)}" for name, value in row.items()) for row in metadata["history"]),
        ]
    return "\n".join(text)


def output_lines(metadata: dict[str, Any], verbose: bool) -> list[str]:
    """Each target with its quality, and where which features decide it."""
    if metadata["output_quality"] is None:
        return []
    from sointer._support.validation import whole_percents

    localities = {one["output"]: one for one in metadata["localities"] or []}
    shown = metadata["output_quality"] if verbose else metadata["output_quality"][:MAX_NAMES]
    lines = [""]
    for one in shown:
        agreement, skill = (("-" if one[name] is None else f"{one[name]:.1%}") for name in ("agreement", "skill"))
        lines.append(f"{one['output']} ({one['kind']}): agreement {agreement}, skill {skill}")
        if (found := localities.get(one["output"])) is None:
            continue
        head = "" if found["decided"] else "many features contribute, the strongest: "
        leaves = found["localities"]
        percents = whole_percents([leaf["share"] for leaf in leaves])
        for percent, leaf in list(zip(percents, leaves, strict=True))[: None if verbose else MAX_LOCALITIES]:
            lines.append(f"  {percent:>3}% {leaf['where']}: {head}{listed(leaf['features'], verbose) or 'nothing'}")
        if not verbose and len(leaves) > MAX_LOCALITIES:
            lines.append(f"  and {len(leaves) - MAX_LOCALITIES} more localities (--verbose)")
    if len(shown) < len(metadata["output_quality"]):
        lines.append(f"and {len(metadata['output_quality']) - len(shown):,} more outputs (--verbose)")
    return lines


def listed(names: list[str], all_of_them: bool) -> str:
    """Names, but not more than a line of them."""
    shown = names if all_of_them else names[:MAX_NAMES]
    return ", ".join(map(str, shown)) + (f" and {len(names) - len(shown):,} more" if len(shown) < len(names) else "")


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"({len(value)} values)"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
