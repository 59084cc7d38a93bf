"""How Sphinx makes the site: `make docs`. Nothing is fetched, neither by the build nor by its pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from sointer import __version__

project = "sointer"
author = "The sointer authors"
copyright = "The sointer authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "mathml"]
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
napoleon_google_docstring = False
napoleon_use_rtype = napoleon_use_param = False  # types are written in words, which are no names to link to
napoleon_use_ivar = True
autodoc_member_order = "bysource"
# scikit-learn documents what an estimator has from it.
REQUESTS = (
    "fit partial_fit predict predict_proba predict_log_proba decision_function score split transform inverse_transform"
)
autodoc_default_options = {
    "exclude-members": ", ".join(
        ["get_metadata_routing", "set_output", *(f"set_{name}_request" for name in REQUESTS.split())]
    )
}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 90
python_use_unqualified_type_names = True

# Names of other packages cannot be looked up without the network; those of sointer must exist.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!sointer\b).*"),
    # Seen in annotations only.
    (
        "py:class",
        r"sointer\.(explainers\.records|explainers\.recording|blackbox\.replies|blackbox\.adapters\.text|explainers\.base|io\.writers|zoo\.\w+)\.\w+",
    ),
]
