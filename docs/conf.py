"""How Sphinx makes the site: `make docs`. Nothing is fetched, neither by the build nor by its pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from sointer import __version__

project = "sointer"
author = "The sointer authors"
copyright = "The sointer authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "mathml", "plain_docstrings"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "sointer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = html_copy_source = False
html_show_search_summary = False  # would have to be fetched, which browsers refuse to pages opened from a disk
highlight_language = "none"  # blocks without a language are what a program printed
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div.highlight-python pre, div.highlight-bash pre"

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 90
python_use_unqualified_type_names = True

# Names of other packages cannot be looked up without the network; those of sointer must exist.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!sointer\b).*"),
    ("py:class", r"sointer\.(base\.Explainer|explanation\.Source|paths\.Trace)"),  # seen in annotations only
    ("py:class", r"sointer\.(adapters\.text|streaming\.text_writer|zoo\.\w+)\.\w+"),
]
