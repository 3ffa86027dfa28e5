"""What an AnnData object holds for the functions of `tl`: rows to embed, neighbour graphs, embeddings."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.sparse import identity

from scalable_gpe.checks import NotFiniteError, check_row
from scalable_gpe.errors import ConnectivityWarning, warn
from scalable_gpe.heat.normalization import HeatKernel, heat_kernel
from scalable_gpe.io.anndata_input import chosen_key, matrix_in_memory, read_anndata, representation_key
from scalable_gpe.io.points import Points
from scalable_gpe.propagation.propagate import Propagation


def rows_of(adata: Any, use_rep: str | None) -> tuple[str, Points]:
    """The rows to embed, and their place in the object: "X" or "obsm/NAME"."""
    key = chosen_key(adata, representation_key(use_rep))
    return key, read_anndata(adata, key)


@contextmanager
def naming_place(place: str) -> Iterator[None]:
    """Let an error about rows that are not finite name them as the object does."""
    try:
        yield
    except NotFiniteError as error:
        part, _, name = place.partition("/")
        rows = f"{part}[{name!r}]" if name else part
        raise ValueError(f"{rows} {error.fault} Drop these observations, or fill them in.") from None


def embeddings_in(adata: Any) -> list[str]:
    """The keys of the embeddings that `embed` wrote."""
    ours = {"parameters", "report"}  # anndata.concat may have dropped one of them
    found = [key for key, about in adata.uns.items() if isinstance(about, Mapping) and ours & set(about)]
    return [key for key in found if f"X_{key}" in adata.obsm]


def graph_matrix(adata: Any, neighbors_key: str, kind: str) -> tuple[str, Any]:
    """Place and values of the "distances" or "connectivities" of a graph."""
    if neighbors_key not in adata.uns:
        graphs = [key for key, about in adata.uns.items() if isinstance(about, Mapping) and "distances_key" in about]
        raise KeyError(
            "neighbors_key must be a key of uns that sc.pp.neighbors or gpe.tl.neighbors wrote; got "
            f"{neighbors_key!r}. Pass one of {graphs}, or call one of them first."
        )
    name = str(adata.uns[neighbors_key].get(f"{kind}_key", kind))
    if name not in adata.obsp:
        raise KeyError(
            f"neighbors_key={neighbors_key!r} names obsp[{name!r}], which is not there. Run sc.pp.neighbors."
        )
    return f"obsp/{name}", matrix_in_memory(adata.obsp[name])


def heat_of(adata: Any, neighbors_key: str | None, normalization: str) -> HeatKernel:
    """The heat kernel of a graph: its connectivities, with ones on the diagonal."""
    own = embeddings_in(adata)
    if neighbors_key is None and own and "gpe" not in own:
        choices = [*own, *(["neighbors"] if "neighbors" in adata.uns else [])]
        raise ValueError(f"neighbors_key must say which graph to take: {', '.join(map(repr, choices))}.")
    key = neighbors_key or ("gpe" if own else "neighbors")
    connectivities = graph_matrix(adata, key, "connectivities")[1]
    if (n_all := adata.uns[key].get("n_obs", adata.n_obs)) != adata.n_obs:
        warn(
            f"adata has {adata.n_obs} of the {n_all} observations of the graph {key!r}; edges to others are gone. "
            "Call this before you take a subset, or gpe.tl.neighbors after.",
            ConnectivityWarning,
        )
    return heat_kernel(connectivities + identity(adata.n_obs, connectivities.dtype, "csr"), normalization)


def row_of(adata: Any, row: Any, name: str) -> int:
    """The number of an observation that is given by number or name."""
    return check_row(row, adata.n_obs, np.asarray(adata.obs_names), name, "observation")


def scanpys_root(adata: Any, n_embedded: int) -> Any:
    """The number or name of scanpy's root, ``uns["iroot"]``, in an object that holds all embedded observations."""
    root = adata.uns.get("iroot")
    if root is None:
        raise ValueError(
            "root must be a row number or the name of one observation: none was given, and adata has no "
            "uns['iroot']. Pass one, or set adata.uns['iroot'] as for sc.tl.dpt."
        )
    if not isinstance(root, str) and n_embedded != adata.n_obs:
        raise ValueError(
            f"uns['iroot'] is a row number, and adata has {adata.n_obs} of {n_embedded} observations that "
            "were embedded: it may be that of another cell. Pass root= by name, as in adata.obs_names."
        )
    return root


# --- results --------------------------------------------------------------------------------------


def key_of(key_added: Any, default: str) -> str:
    """The key of results; a file has no names with "/"."""
    if key_added is None:
        return default
    if not isinstance(key_added, str) or not key_added or "/" in key_added:
        raise ValueError(f"key_added must be a name, without '/'; got {key_added!r}.")
    return key_added


def remove_embedding(adata: Any, key: str) -> None:
    """Remove the powers and the pseudotime of an earlier call: they would pass for those of this one."""
    about = adata.uns.get(key)
    for power in about.get("powers", ()) if isinstance(about, Mapping) else ():
        if f"X_{key}_{power}" in adata.obsm:
            del adata.obsm[f"X_{key}_{power}"]
    old = f"{key}_pseudotime"
    if isinstance(about, Mapping) and "pseudotime_error" in about and old in adata.obs:
        adata.obs = adata.obs[[column for column in adata.obs.columns if column != old]]  # a lazy table has no del


def categorical(adata: Any, codes: np.ndarray, classes: Iterable[Any]) -> Any:
    """A categorical column; missing where the code is -1."""
    column = adata.obs_names.to_series().astype("category")
    return type(column)(type(column.array).from_codes(codes, [str(one) for one in classes]), index=adata.obs_names)


def about_solution(solution: Propagation) -> dict[str, Any]:
    """What is known of a result: only values that h5ad and zarr can write."""
    about = {name: getattr(solution, name) for name in ("method", "n_unreached", "iterations", "residual", "converged")}
    horizon = {} if solution.horizon is None else {"horizon": solution.horizon}
    return about | horizon | {"classes": [str(one) for one in solution.classes]}
