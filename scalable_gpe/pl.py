"""Pictures of AnnData objects, as scanpy's `sc.pl`. Needs ``pip install "scalable-gpe[plot]"``."""

from typing import Any

import numpy as np

from scalable_gpe.checks import in_order_of
from scalable_gpe.plot.embeddings import scatter

__all__ = ["embedding"]


def embedding(adata: Any, basis: str = "gpe", color: Any = None, **parameters: Any) -> Any:
    """Draw an embedding of an AnnData object; `scalable_gpe.plot.scatter` of a part of its obsm.

    Parameters
    ----------
    adata : AnnData
        With ``obsm["X_gpe"]``, as `scalable_gpe.tl.embed` writes it.
    basis : str
        The part of obsm: "gpe" or "X_gpe".
    color : str or array (N,), optional
        A column of obs, or values as in `scatter`.
    parameters
        All other parameters of `scalable_gpe.plot.scatter`.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import anndata, scalable_gpe as gpe
    >>> adata = anndata.AnnData(gpe.datasets.torus(300))
    >>> gpe.tl.embed(adata, n_components=16)
    >>> gpe.tl.pseudotime(adata, 0)
    >>> gpe.pl.embedding(adata, color="gpe_pseudotime").get_title()
    '300 points'
    """
    key = next((key for key in (f"X_{basis}", basis) if key in adata.obsm), None)
    if key is None:
        raise KeyError(
            f"basis must name a part of obsm, {sorted(adata.obsm)}; got {basis!r}. gpe.tl.embed(adata) writes "
            "obsm['X_gpe']."
        )
    if isinstance(color, str):
        if color not in adata.obs:
            raise KeyError(f"color must be a column of obs, {sorted(adata.obs)}, or an array; got {color!r}.")
        parameters = {"color_label": color, **parameters}
        color = adata.obs[color]
    color = in_order_of(np.asarray(adata.obs_names, str), color, "color")
    return scatter(np.asarray(adata.obsm[key]), color=color, **parameters)


def __dir__() -> list[str]:
    return __all__
