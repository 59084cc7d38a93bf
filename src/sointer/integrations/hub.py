"""To the Hugging Face Hub: explainers as repositories of safetensors and JSON, with a card that says what they are."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sointer._support import __version__
from sointer._support.files import put
from sointer.config import Rows
from sointer.errors import LoadError, require_extra
from sointer.explainers.sointer import SOInter
from sointer.io.explainers import check_fitted, load

CARD = "README.md"
FILES = ["explainer.json", "weights-*.safetensors"]
MAX_LISTED = 50
OF_ROWS = {
    "none": "No training rows are inside.",
    "synthetic": "No training rows are inside, but rows in which each column is drawn on its own.",
    "keep": "**Up to 2,000 training rows are inside, number for number.**",
}


def save_pretrained(explainer: SOInter, folder: str | os.PathLike[str], *, rows: Rows = "none") -> Path:
    """Write a fitted explainer and its model card to a folder, as `push_to_hub` would upload them.

    Parameters
    ----------
    explainer : SOInter
        Fitted. The model that it explains is never stored.
    folder : path
        New, empty, or containing an explainer, which is replaced.
    rows : "none", "synthetic" or "keep"
        What the files contain of the training data, as in `SOInter.save`; here, nothing by default.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If the explainer is not a fitted SOInter, or the folder contains other files.
    """
    check_fitted(explainer, "the hub")
    explainer.save(folder, rows=rows)
    put(Path(folder) / CARD, make_card(explainer, rows).encode())
    return Path(folder)


def push_to_hub(
    explainer: SOInter,
    repo_id: str,
    *,
    rows: Rows = "none",
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Explainer",
) -> str:
    """Upload a fitted explainer and its model card; the repository is created if it does not exist.

    Parameters
    ----------
    explainer : SOInter
        Fitted. The model that it explains is never uploaded.
    repo_id : str
        Such as "me/why-loans".
    rows : "none", "synthetic" or "keep"
        What is uploaded of the training data, as in `SOInter.save`; here, nothing by default.
    private, token, revision, commit_message : optional
        As in `huggingface_hub.HfApi`.

    Returns
    -------
    str
        The address of the commit.
    """
    hub = require_extra("huggingface_hub", "hub")
    api = hub.HfApi(token=token)
    with TemporaryDirectory() as folder:
        save_pretrained(explainer, Path(folder) / "explainer", rows=rows)
        api.create_repo(repo_id, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=repo_id,
            folder_path=Path(folder) / "explainer",
            revision=revision,
            commit_message=commit_message,
            delete_patterns=FILES[1:],  # those of the explainer that is replaced
        )
    return str(done)


def from_pretrained(
    name: str | os.PathLike[str],
    black_box: Any = None,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    removal: Any = None,
    splitter: Any = None,
) -> SOInter:
    """Load an explainer from a repository, or from a folder written by `save_pretrained`; nothing in it is executed.

    Parameters
    ----------
    name : str or path
        A folder, if one of that name exists; otherwise a repository such as "me/why-loans".
    black_box : optional
        As in `sointer.load`.
    revision, token, cache_dir : optional
        As in `huggingface_hub.snapshot_download`. Name a commit to get the same explainer every time.
    removal, splitter : optional
        As in `sointer.load`.

    Returns
    -------
    SOInter
        Fitted.

    Raises
    ------
    LoadError
        If the repository contains no complete explainer.
    """
    if Path(name).is_dir():
        return load(name, black_box, removal=removal, splitter=splitter)
    hub = require_extra("huggingface_hub", "hub")
    found = hub.snapshot_download(
        os.fspath(name), revision=revision, token=token, cache_dir=cache_dir, allow_patterns=FILES
    )
    # The cache holds links to files elsewhere, which load refuses to follow.
    with TemporaryDirectory() as folder:
        for file in Path(found).iterdir():
            if any(file.match(pattern) for pattern in FILES):
                shutil.copyfile(file, Path(folder) / file.name)
        try:
            return load(folder, black_box, removal=removal, splitter=splitter)
        except LoadError as error:
            raise LoadError(str(error).replace(folder, os.fspath(name))) from error


def make_card(explainer: SOInter, rows: Rows) -> str:
    """What the explainer is, how good it is and what is inside, as a model card."""
    outputs, names = explainer.outputs_, explainer.output_names_
    is_mask = outputs.shape is not None
    reads = "images" if explainer.input_format_.image is not None else "texts" if explainer.reads_text else "tables"
    tags = ["sointer", "explainability", "interpretability", "xai", reads]
    lines = ["---", "library_name: sointer", "tags:", *(f"- {tag}" for tag in tags), "---", "", "# An explainer", ""]
    what = f"{len(explainer.targets_):,} pixels of masks" if is_mask else f"{len(explainer.targets_):,} of its outputs"
    lines += [
        f"It says which few features of a sample ({reads}, {explainer.n_features_in_:,} features) decided what a model "
        f"predicts for each of {what}. The model itself is not inside. Made with sointer {__version__}.",
        "",
        "```python",
        "from sointer.integrations.hub import from_pretrained",
        "",
        'explainer = from_pretrained("this/repository", black_box=model)  # or without a model',
        "explanation = explainer.explain(X, target=...)",
        "```",
        "",
        "## How good it is",
        "",
        f"Learned from {explainer.n_queries_ + explainer.n_queries_replayed_:,} queries. On held-out queries "
        f"it predicts {explainer.held_out_agreement_:.1%} of outputs as the model does.",
        "",
    ]
    if not is_mask:
        lines += ["| output | kind | agreement, held out |", "|---|---|---|"]
        for target in explainer.targets_[:MAX_LISTED]:
            agreement = f"{explainer.output_agreement_[target]:.1%}"
            lines.append(f"| {_cell(names[target])} | {outputs.kinds[target]} | {agreement} |")
        if len(explainer.targets_) > MAX_LISTED:
            lines.append(f"| and {len(explainer.targets_) - MAX_LISTED:,} more | | |")
        lines.append("")
    lines += [
        "How well explanations hold for your samples is measured with the model: `explanation.verify()`.",
        "",
        "## What is inside",
        "",
        f"{OF_ROWS[rows]} In any case: names of features, outputs and labels, categories, ranges and medians of "
        "columns, and what the model predicted for training rows, without the rows. JSON and safetensors, no pickle.",
        "",
        "## What it cannot say",
        "",
        "What decided the model's prediction, not whether it is right or fair; nothing about samples unlike those it "
        "was fitted on (`explanation.far`); nothing about another version of the model.",
        "",
    ]
    return "\n".join(lines)


def _cell(name: str) -> str:
    """A name as the cell of a table, whatever is in it."""
    return json.dumps(name, ensure_ascii=False)[1:-1].replace("|", "\\|").replace("<", "&lt;")
