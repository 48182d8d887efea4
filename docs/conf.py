"""Sphinx configuration. Nothing here needs a network: no intersphinx, no fonts or scripts from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import commcanary_lab  # noqa: E402

project = "commcanary_lab"
author = "the commcanary_lab contributors"
copyright = "the commcanary_lab contributors; Apache-2.0"
version = release = commcanary_lab.__version__

extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_parser", "cli_reference"]

# -- Markdown -----------------------------------------------------------------------------------------------------------
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 3

# -- Docstrings -----------------------------------------------------------------------------------------------------------
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False
default_role = "code"

# -- Pages ----------------------------------------------------------------------------------------------------------------
exclude_patterns = ["_build", "_ext", "api", "Thumbs.db"]
html_theme = "furo"
html_title = f"commcanary_lab {release}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
highlight_language = "none"


def _optional_pages(app: object, name: str, source: list[str]) -> None:
    """`benchmarks.md` is written by a separate run; the list of pages names it only where it is there."""
    if name == "index" and not (HERE / "benchmarks.md").exists():
        source[0] = source[0].replace("\nbenchmarks\n", "\n")


def setup(app: Any) -> None:
    """Connect."""
    app.connect("source-read", _optional_pages)
