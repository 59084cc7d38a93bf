"""How every page is made: a template, filled with everything escaped, into one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sointer.errors import require_extra

TEMPLATES = Path(__file__).parent / "templates"


def render_template(name: str, **values: Any) -> str:
    """The page as text.

    Templates write data with jinja's tojson, which escapes <, >, & and all that is not ASCII: no text can end the
    script that it stands in.
    """
    jinja2 = require_extra("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    page: str = environment.get_template(name).render(**values)
    return page
