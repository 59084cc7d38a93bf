"""Metadata changed by someone who makes the checksum right again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sointer._support.files import content_digest


def seal(file: Path, metadata: dict[str, Any]) -> None:
    """Write metadata with the checksum that belongs to it."""
    metadata = {name: value for name, value in metadata.items() if name != "content_sha256"}
    file.write_text(json.dumps({**metadata, "content_sha256": content_digest(metadata)}))


def edit_model(**changes: Any) -> Callable[[Path], None]:
    """A function that makes these changes to the metadata of a model saved in a folder."""

    def change(directory: Path) -> None:
        file = directory / "model.json"
        seal(file, {**json.loads(file.read_text()), **changes})

    return change
