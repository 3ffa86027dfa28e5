"""Plots of embeddings, of epsilon, of the spectrum and of an audit. Needs ``pip install "scalable-gpe[plot]"``.

`scatter` and `powers` draw embeddings of any size; `epsilon_sweep`, `spectrum` and `audit` draw diagnostics.
"""

from scalable_gpe.plot.diagnostics import audit, epsilon_sweep, spectrum
from scalable_gpe.plot.embeddings import powers, scatter

__all__ = ["scatter", "powers", "epsilon_sweep", "spectrum", "audit"]
