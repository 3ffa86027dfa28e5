"""Sphinx: Markdown pages and the docstrings of the public names."""

import scalable_gpe

project = "scalable_gpe"
author = "The scalable_gpe developers"
copyright = "2026, the scalable_gpe developers"
version = release = scalable_gpe.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
napoleon_google_docstring = False
default_role = "py:obj"  # `embed` in a docstring is a link where there is such a name
smartquotes_action = "D"  # quotes and dots stay as they are: they are code as often as not
html_theme = "furo"
html_title = f"scalable_gpe {release}"
exclude_patterns = ["_build", "usefulness-results.md"]  # the latter is included in all-scales.md
