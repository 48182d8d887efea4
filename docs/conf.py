"""Sphinx configuration. Nothing here needs a network: no intersphinx, no fonts or scripts from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import commcanary_lab  # noqa: E402

project = "commcanary_lab"
author = "the commcanary_lab contributors"
copyright = "the commcanary_lab contributors; Apache-2.0"
version = release = commcanary_lab.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc", "myst_parser", "cli_reference"]

# -- Markdown -----------------------------------------------------------------------------------------------------------
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
#: Formulas stay readable text without MathJax; nothing is loaded from a content delivery network.
mathjax_path = ""

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
highlight_language = "none"
# three warnings are about things that are meant: a Literal block that is JSON with "...", README-style links to files outside docs
suppress_warnings = ["misc.highlighting_failure"]
