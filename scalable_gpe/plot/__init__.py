"""Plots of embeddings, of epsilon, of the spectrum and of an audit. Needs ``pip install "scalable-gpe[plot]"``.

`scatter` and `powers` draw embeddings of any size; `interactive` makes a picture with hover and zoom for notebooks,
without matplotlib; `epsilon_sweep`, `spectrum` and `audit` draw diagnostics.
"""

from scalable_gpe.plot.diagnostics import audit, epsilon_sweep, spectrum
from scalable_gpe.plot.embeddings import powers, scatter
from scalable_gpe.plot.pages import InteractivePlot, interactive

__all__ = ["scatter", "powers", "interactive", "InteractivePlot", "epsilon_sweep", "spectrum", "audit"]


def __dir__() -> list[str]:
    return __all__
