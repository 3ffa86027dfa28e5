"""Sphinx: Markdown pages and the docstrings of the public names."""

import scalable_gpe

project = "scalable_gpe"
author = "The scalable_gpe developers"
copyright = "2026, the scalable_gpe developers"
version = release = scalable_gpe.__version__

extensions = [
    "myst_nb",  # Markdown pages, and notebooks with their output
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.intersphinx",
]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # docs/notebooks/run.py runs them, and .ci/full notebooks calls it
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_preprocess_types = True
napoleon_type_aliases = {
    "ndarray": "numpy.ndarray",
    "array-like": ":term:`array-like <numpy:array_like>`",
    "AnnData": "anndata.AnnData",
    "Embedding": "scalable_gpe.Embedding",
    "NeighborGraph": "scalable_gpe.NeighborGraph",
    "SparseKernel": "scalable_gpe.SparseKernel",
    "HeatKernel": "scalable_gpe.HeatKernel",
}
default_role = "py:obj"  # `embed` in a docstring is a link where there is such a name
smartquotes_action = "D"  # quotes and dots stay as they are: they are code as often as not
html_theme = "furo"
html_title = f"scalable_gpe {release}"
exclude_patterns = ["_build", "developers/*-results.md"]  # included in pages of the section

# without a network the build takes the empty inventory, and names of other packages are no links
_ELSEWHERE = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "scipy": "https://docs.scipy.org/doc/scipy",
    "zarr": "https://zarr.readthedocs.io/en/stable",
    "dask": "https://docs.dask.org/en/stable",
    "sklearn": "https://scikit-learn.org/stable",
    "anndata": "https://anndata.readthedocs.io/en/stable",
}
intersphinx_mapping = {name: (address, (None, "offline.inv")) for name, address in _ELSEWHERE.items()}
intersphinx_timeout = 5

# roles of the pages must lead somewhere; types in docstrings are prose as often as names
nitpicky = True
nitpick_ignore_regex = [
    ("py:(class|obj|exc|data)", ".*"),
    ("py:.*", rf"({'|'.join(_ELSEWHERE)})\..*"),
    ("std:term", ".*"),
]

# external addresses: sphinx-build -b linkcheck docs OUT; links between pages fail every build
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]  # anchors there are made by scripts
