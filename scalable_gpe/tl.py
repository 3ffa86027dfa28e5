"""Functions that work on an AnnData object in place, as scanpy's do.

Results of `embed` and `pseudotime` go to keys of their own (``X_gpe``, ``gpe_distances``, ``gpe_connectivities``,
``gpe_component``, ``gpe``, ``gpe_pseudotime``), those of `neighbors` and `diffmap` to scanpy's, those of `fate` to
CellRank's; nothing else of the object is touched.
"""

from functools import partial
from typing import Any

import numpy as np

from scalable_gpe.anndata_graphs import (
    about_solution,
    categorical,
    embeddings_in,
    graph_matrix,
    heat_of,
    key_of,
    naming_place,
    remove_embedding,
    row_of,
    rows_of,
    scanpys_root,
)
from scalable_gpe.checks import ALL, Seed, check_count, check_random_state
from scalable_gpe.colors import label_colors
from scalable_gpe.embedding import distances_from
from scalable_gpe.errors import ConnectivityWarning, warn
from scalable_gpe.exports import component_numbers, graph_matrices, provenance, run_numbers, scanpy_neighbors
from scalable_gpe.graph.build import neighbor_graph
from scalable_gpe.heat.kernel import gaussian_kernel
from scalable_gpe.heat.normalization import top_eigenvector
from scalable_gpe.pipeline import embed as embed_points
from scalable_gpe.projection import points_of
from scalable_gpe.propagation.labels import check_groups, check_labels
from scalable_gpe.propagation.propagate import propagate as propagate_labels
from scalable_gpe.spectral.diffusion_map import diffusion_map

__all__ = ["diffmap", "embed", "fate", "neighbors", "propagate", "pseudotime"]


def embed(
    adata: Any,
    *,
    use_rep: str | None = None,
    neighbors_key: str | None = None,
    key_added: str | None = None,
    copy: bool = False,
    **parameters: Any,
) -> Any:
    """Embed the observations of an AnnData object, and write the embedding and its graph into the object.

    Parameters
    ----------
    adata : AnnData
        In memory, backed or lazy. The rows of a backed or lazy object are read block by block, and the results are held
        in memory until you write the object (a lazy one with ``adata.to_memory().write_h5ad(path)``).
    use_rep : str, optional
        The rows to embed: a key of ``obsm``, or "X"; by default ``obsm["X_pca"]`` if it is there, else ``X``.
    neighbors_key : str, optional
        Use the neighbour graph of scanpy's ``sc.pp.neighbors`` under this key of ``uns`` ("neighbors" is scanpy's
        default) instead of a search.
    key_added : str, optional
        The key of the results, by default "gpe"; "X_mine" is the same as "mine".
    copy : bool
        Return a copy instead of writing into the object.
    parameters
        All other parameters of :func:`scalable_gpe.embed` but ``neighbors`` and ``metric="precomputed"``.

    Returns
    -------
    AnnData or None
        With ``obsm["X_gpe"]``, ``obs["gpe_component"]`` (connected components), ``obs["gpe_run"]`` (the same number in
        all that were embedded together), ``obsp["gpe_distances"]``, ``obsp["gpe_connectivities"]`` and ``uns["gpe"]``.
        Of several powers ``X_gpe`` is "all", or the largest if "all" is not among them, and ``obsm["X_gpe_<power>"]``
        holds each; ``uns["gpe"]["power"]`` says which one was taken, ``uns["gpe"]["source"]`` what was embedded. A
        second call with the same key replaces the results of the first,
        and removes their ``obs["gpe_pseudotime"]``.

    Examples
    --------
    >>> import anndata, scalable_gpe as gpe
    >>> adata = anndata.AnnData(gpe.datasets.torus(300))
    >>> gpe.tl.embed(adata, n_components=8, power="all")
    >>> adata.obsm["X_gpe"].shape
    (300, 8)
    """
    if "neighbors" in parameters or parameters.get("metric") == "precomputed":
        raise TypeError("neighbors and metric='precomputed' are for gpe.embed. Pass neighbors_key here.")
    if use_rep is not None and neighbors_key is not None:
        raise ValueError("use_rep and neighbors_key both name an input. Pass one of them.")
    if neighbors_key is None and parameters.get("missing") == "drop":
        raise ValueError("missing='drop' leaves rows out, which obsm cannot. Drop the observations first.")
    adata = adata.copy() if copy else adata
    key_added = key_of(key_added.removeprefix("X_") if isinstance(key_added, str) else key_added, "gpe")
    rows, lists = None, None
    if neighbors_key is None:
        place, rows = rows_of(adata, use_rep)
    else:
        place, lists = graph_matrix(adata, neighbors_key, "distances")
    if place == f"obsm/X_{key_added}":
        raise ValueError(f"key_added={key_added!r} would replace {place}, which is embedded.")
    with naming_place(place):
        result = embed_points(rows, neighbors=lists, **parameters)
    matrices = graph_matrices(result.graph, result.kernel)
    remove_embedding(adata, key_added)
    points, chosen = points_of(result)
    adata.obsm[f"X_{key_added}"] = np.asarray(points[:])
    if len(result.by_power) > 1:
        for power, values in result.by_power.items():
            adata.obsm[f"X_{key_added}_{power}"] = np.asarray(values[:])
    adata.obs[f"{key_added}_component"] = component_numbers(result)
    adata.obs[f"{key_added}_run"] = run_numbers(result)
    keys = f"{key_added}_distances", f"{key_added}_connectivities"
    adata.obsp[keys[0]], adata.obsp[keys[1]] = matrices
    graph = scanpy_neighbors(result.graph, result.parameters, *keys, place)
    adata.uns[key_added] = provenance(result, chosen, result.by_power, place) | graph
    return adata if copy else None


def pseudotime(
    adata: Any, root: Any = None, *, key: str = "gpe", key_added: str | None = None, copy: bool = False
) -> Any:
    """Diffusion pseudotime from a root, of an object that `embed` has embedded with ``power="all"``.

    Parameters
    ----------
    adata : AnnData
        An object with ``obsm["X_gpe"]``, ``obs["gpe_component"]`` and ``uns["gpe"]``, or some of its observations.
    root : int or str, optional
        The root observation: its number, or its name; by default ``uns["iroot"]``, which scanpy uses too.
    key : str
        The key of the embedding.
    key_added : str, optional
        The column of ``obs`` that is written; by default the key with "_pseudotime" behind it.
    copy : bool
        Return a copy instead of writing into the object.

    Returns
    -------
    AnnData or None
        With ``obs["gpe_pseudotime"]``: distances from the root, infinite where no path of the whole graph leads to; and
        their relative error as ``uns["gpe"]["pseudotime_error"]``, the mean over sampled roots.

    Examples
    --------
    >>> import anndata, scalable_gpe as gpe
    >>> adata = anndata.AnnData(gpe.datasets.circle(300))
    >>> gpe.tl.embed(adata, n_components=32, power="all")
    >>> gpe.tl.pseudotime(adata, 0)
    >>> float(adata.obs["gpe_pseudotime"].iloc[0])
    0.0
    """
    key = key.removeprefix("X_")
    others = embeddings_in(adata)
    if key not in others:
        advice = f"pass key={others[0]!r}" if others else "call gpe.tl.embed(adata, power='all') first"
        raise KeyError(f"adata holds no embedding {key!r}: {advice}.")
    about = adata.uns[key]
    name = f"X_{key}" if about.get("power") == ALL else f"X_{key}_{ALL}"
    if "power" in about and name not in adata.obsm:
        raise ValueError("pseudotime needs all scales: pass power='all' to gpe.tl.embed.")
    columns = {f"{key}_component", f"{key}_run"}  # parts of a graph do not tell what is connected
    if columns - set(adata.obs) or "run" not in about or np.any(np.asarray(adata.obs[f"{key}_run"]) != about["run"]):
        text = (
            f"the observations of adata come from several embeddings, as after anndata.concat, or lack one of "
            f"{sorted(columns)} in obs. Call gpe.tl.embed after concatenating: distances between separate embeddings "
            "mean nothing."
        )
        raise ValueError(text)
    if root is None:
        root = scanpys_root(adata, about.get("n_obs", adata.n_obs))
    adata, column = adata.copy() if copy else adata, key_of(key_added, f"{key}_pseudotime")
    component = np.asarray(adata.obs[f"{key}_component"])
    distances = distances_from(row_of(adata, root, "root"), adata.obsm[name], component)
    adata.obs[column] = distances
    adata.uns[key]["pseudotime_error"] = float(about["distance_error"])
    if n_apart := int(np.isinf(distances).sum()):
        warn(
            f"no path of the graph leads from the root to {n_apart} of {adata.n_obs} observations: their pseudotime is "
            f"infinite. obs['{key}_component'] tells the components apart; more neighbours may join them.",
            ConnectivityWarning,
        )
    return adata if copy else None


def neighbors(
    adata: Any,
    n_neighbors: int | None = None,
    *,
    use_rep: str | None = None,
    key_added: str | None = None,
    epsilon: float | str = "auto",
    metric: str = "euclidean",
    method: str = "auto",
    recall: float = 0.95,
    random_state: Seed = 0,
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
    copy: bool = False,
) -> Any:
    r"""Write our neighbour graph where scanpy's functions look for it; it takes the place of ``sc.pp.neighbors``.

    The connectivities are the kernel without its diagonal,

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon), \quad i \ne j.

    Parameters
    ----------
    adata : AnnData
        In memory, backed or lazy.
    n_neighbors : int, optional
        Number of other cells in each list, ``min(16, N - 1)`` by default. scanpy counts the cell itself too:
        ``params["n_neighbors"]`` is one more.
    use_rep : str, optional
        As in `embed`.
    key_added : str, optional
        As in scanpy: by default ``uns["neighbors"]``, ``obsp["distances"]`` and ``obsp["connectivities"]``, else
        ``uns[key_added]``, ``obsp["<key_added>_distances"]`` and ``obsp["<key_added>_connectivities"]``.
    epsilon : float or {"auto", "global", "local", "bgh"}
        The bandwidth, as in `gaussian_kernel`.
    metric, method, recall, random_state, memory_limit, n_jobs
        As in `neighbor_graph`.
    copy : bool
        Return a copy instead of writing into the object.

    Returns
    -------
    AnnData or None
        With the graph; ``sc.tl.leiden``, ``sc.tl.umap`` and `diffmap` find it.

    Examples
    --------
    >>> import anndata, scalable_gpe as gpe
    >>> adata = anndata.AnnData(gpe.datasets.torus(300))
    >>> gpe.tl.neighbors(adata, 15)
    >>> adata.obsp["distances"].nnz, adata.uns["neighbors"]["params"]["n_neighbors"]
    (4500, 16)
    """
    adata, name = adata.copy() if copy else adata, key_of(key_added, "neighbors")
    if name in embeddings_in(adata):
        raise ValueError(f"key_added={name!r} would replace what uns says of an embedding. Choose another.")
    (place, rows), seed = rows_of(adata, use_rep), check_random_state(random_state)
    with naming_place(place):
        graph = neighbor_graph(
            rows,
            n_neighbors,
            metric=metric,
            method=method,
            recall=recall,
            random_state=seed,
            memory_limit=memory_limit,
            n_jobs=n_jobs,
        )
    matrices = graph_matrices(graph, gaussian_kernel(graph, epsilon))
    prefix = "" if key_added is None else f"{key_added}_"
    keys = f"{prefix}distances", f"{prefix}connectivities"
    adata.obsp[keys[0]], adata.obsp[keys[1]] = matrices
    parameters = {"metric": metric, "random_state": seed}
    adata.uns[name] = scanpy_neighbors(graph, parameters, *keys, place)
    return adata if copy else None


def diffmap(
    adata: Any,
    n_comps: int = 15,
    *,
    neighbors_key: str = "neighbors",
    normalization: str = "bistochastic",
    copy: bool = False,
) -> Any:
    """Diffusion map of a neighbour graph in the object, where ``sc.tl.dpt`` and ``sc.pl.diffmap`` look for it.

    Equivalent to ``sc.tl.diffmap``, with the solver and the normalisation of `diffusion_map`.

    Parameters
    ----------
    adata : AnnData
        With a graph of `neighbors`, `embed` or ``sc.pp.neighbors``. Its connectivities, with ones on the diagonal, are
        the kernel.
    n_comps : int
        Number of eigenvectors, the known first one included, as in scanpy.
    neighbors_key : str
        The key of the graph in ``uns``; "gpe" for that of `embed`.
    normalization : {"bistochastic", "symmetric"}
        As in `heat_kernel`. "symmetric" is scanpy's; its first eigenvector is not constant.
    copy : bool
        Return a copy instead of writing into the object.

    Returns
    -------
    AnnData or None
        With ``obsm["X_diffmap"]``, unit eigenvectors in columns, and ``uns["diffmap_evals"]``, their eigenvalues. As in
        scanpy, column 0 belongs to the eigenvalue 1 and tells nothing; the first diffusion component is column 1.

    Examples
    --------
    >>> import anndata, scalable_gpe as gpe
    >>> adata = anndata.AnnData(gpe.datasets.torus(300))
    >>> gpe.tl.neighbors(adata, 15)
    >>> gpe.tl.diffmap(adata)
    >>> adata.obsm["X_diffmap"].shape, float(adata.uns["diffmap_evals"][0])
    ((300, 15), 1.0)
    """
    n_others = check_count(n_comps, "n_comps", minimum=2) - 1
    heat = heat_of(adata, neighbors_key, normalization)
    points, eigenvalues = diffusion_map(heat, n_others)
    first = heat.kernel.storage_order.spread(top_eigenvector(heat))
    # the points are eigenvectors times eigenvalues, with signs that make the largest entries positive
    lengths = np.linalg.norm(points, axis=0)
    vectors = np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0)
    adata = adata.copy() if copy else adata
    adata.obsm["X_diffmap"] = np.column_stack([first, vectors]).astype(np.float32)
    adata.uns["diffmap_evals"] = np.concatenate([[1], eigenvalues]).astype(np.float32)
    return adata if copy else None


def propagate(
    adata: Any,
    key: str,
    *,
    method: str = "spreading",
    horizon: float | str = "auto",
    tol: float | str = "auto",
    neighbors_key: str | None = None,
    normalization: str = "bistochastic",
    key_added: str | None = None,
    copy: bool = False,
) -> Any:
    """Class probabilities of all observations from those with a label, along a graph in the object.

    Parameters
    ----------
    adata : AnnData
        With a graph of `embed`, `neighbors` or ``sc.pp.neighbors``. Its connectivities, with ones on the diagonal, are
        the kernel.
    key : str
        The column of ``obs`` with the labels; missing values and empty texts are observations without one.
    method, horizon, tol
        As in :func:`scalable_gpe.propagate`.
    neighbors_key : str, optional
        The key of the graph in ``uns``: by default "gpe" if it is there, else "neighbors".
    normalization : {"bistochastic", "symmetric"}
        As in `heat_kernel`.
    key_added : str, optional
        The key of the results; by default the column with "_propagated" behind it.
    copy : bool
        Return a copy instead of writing into the object.

    Returns
    -------
    AnnData or None
        With the most probable class as a categorical column ``obs[key_added]`` (missing where no label reaches), its
        entropy ``obs["<key_added>_entropy"]``, ``obsm["<key_added>_probabilities"]`` with a column for each class, and
        ``uns[key_added]``, which names the classes. Colours of the column are kept.

    Examples
    --------
    >>> import anndata, numpy as np, scalable_gpe as gpe
    >>> adata = anndata.AnnData(gpe.datasets.torus(300))
    >>> adata.obs["side"] = np.where(np.arange(300) < 20, np.where(adata.X[:, 0] > 0, "right", "left"), "")
    >>> gpe.tl.neighbors(adata, 15)
    >>> gpe.tl.propagate(adata, "side")
    >>> adata.obs["side_propagated"].cat.categories.tolist(), adata.obsm["side_propagated_probabilities"].shape
    (['left', 'right'], (300, 2))
    """
    if key not in adata.obs:
        raise KeyError(f"key must be a column of obs, {list(adata.obs)}; got {key!r}.")
    if (name := key_of(key_added, f"{key}_propagated")) == key:
        raise ValueError(f"key_added={key!r} would replace the column of the labels. Choose another.")
    heat = heat_of(adata, neighbors_key, normalization)
    found = propagate_labels(heat, np.asarray(adata.obs[key], object), method=method, horizon=horizon, tol=tol)
    adata = adata.copy() if copy else adata
    adata.obs[name] = categorical(adata, found.codes, found.classes)
    adata.obs[f"{name}_entropy"] = found.entropy
    adata.obsm[f"{name}_probabilities"] = found.probabilities
    adata.uns[name] = about_solution(found) | {"labels": key}
    colors, classes = adata.uns.get(f"{key}_colors"), getattr(adata.obs[key].dtype, "categories", ())
    if colors is not None and list(map(str, classes)) == list(map(str, found.classes)):
        adata.uns[f"{name}_colors"] = colors
    return adata if copy else None


def fate(
    adata: Any,
    terminal: Any,
    *,
    tol: float | str = "auto",
    neighbors_key: str | None = None,
    normalization: str = "bistochastic",
    copy: bool = False,
) -> Any:
    """Probability of each observation to reach each terminal group first, where CellRank's functions look for it.

    Parameters
    ----------
    adata : AnnData
        As in `propagate`.
    terminal : str, dict or sequence
        A column of ``obs``, with missing values in observations of no group; ``{name: observations}``, by number,
        name or mask; or a sequence of observations, each a group of its own.
    tol
        As in :func:`scalable_gpe.propagate`.
    neighbors_key, normalization
        As in `propagate`.
    copy : bool
        Return a copy instead of writing into the object.

    Returns
    -------
    AnnData or None
        With ``obsm["lineages_fwd"]``, a column for each group; the groups as ``obs["term_states_fwd"]`` with
        ``obs["term_states_fwd_probs"]`` and ``uns["term_states_fwd_colors"]``; and ``uns["lineages_fwd"]``, which names
        the groups.

    Examples
    --------
    >>> import anndata, numpy as np, scalable_gpe as gpe
    >>> adata = anndata.AnnData(np.linspace(0, 1, 200)[:, None])
    >>> gpe.tl.neighbors(adata, 8)
    >>> gpe.tl.fate(adata, {"left": [0], "right": [199]})
    >>> adata.uns["lineages_fwd"]["classes"], bool(adata.obsm["lineages_fwd"][20, 0] > 0.8)
    (['left', 'right'], True)
    """
    if isinstance(terminal, str):
        if terminal not in adata.obs:
            raise KeyError(f"terminal must be a column of obs, {list(adata.obs)}; got {terminal!r}.")
        given = check_labels(np.asarray(adata.obs[terminal], object), adata.n_obs, "terminal")
        names, codes = [str(one) for one in given.classes], given.by_row(adata.n_obs)
    else:
        find, obs_names = partial(row_of, adata, name="terminal"), np.asarray(adata.obs_names, str)
        groups, codes = check_groups(terminal, adata.n_obs, find, obs_names)
        names = [str(one) for one in groups]
    found = propagate_labels(heat_of(adata, neighbors_key, normalization), codes, method="harmonic", tol=tol)
    adata = adata.copy() if copy else adata
    adata.obs["term_states_fwd"] = categorical(adata, codes, np.array(names))
    adata.obs["term_states_fwd_probs"] = np.where(codes >= 0, 1.0, np.nan)
    adata.uns["term_states_fwd_colors"] = list(label_colors(len(names)))
    adata.obsm["lineages_fwd"] = found.probabilities.astype(np.float64)
    adata.uns["lineages_fwd"] = about_solution(found) | {"classes": names}
    return adata if copy else None


def __dir__() -> list[str]:
    return __all__
