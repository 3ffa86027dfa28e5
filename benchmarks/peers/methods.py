"""What is measured: each method as one function from rows to what it finds, with the parameters that its users get.

This file is imported by the processes that measure, which may have other versions of numpy than the library needs.
Each method imports its package when it is called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

COMPONENTS = 32
PLANE = 2
NEIGHBORS = 15  # of methods that have no default of their own; UMAP's and scanpy's is 15, too
POWER = 64
OURS = "scalable_gpe"
_SCANPY_EXACT = 8192  # rows from which on scanpy searches with pynndescent
_TREE_FEATURES = 8  # up to which the library searches with a tree


@dataclass(frozen=True)
class Task:
    """Rows to embed, and what a method may need beside them."""

    path: Path
    n_rows: int  # the first so many rows of the file
    seed: int
    root: int | None
    scratch: Path
    memory_limit: int
    large: bool  # whether the measured call has more rows than a search by brute force takes

    @property
    def X(self) -> np.ndarray:
        return np.load(self.path, mmap_mode="r")[: self.n_rows].copy()

    @property
    def search(self) -> str:
        """Our search: that of the measured call, also in the small call that compiles it."""
        return "cells" if self.large and np.load(self.path, mmap_mode="r").shape[1] > _TREE_FEATURES else "auto"


@dataclass(frozen=True)
class Found:
    """Points, or eigenvectors with eigenvalues; lists of neighbours; pseudotime. What a method lacks is None."""

    points: np.ndarray | None = None
    eigenvalues: np.ndarray | None = None
    neighbors: np.ndarray | None = None
    pseudotime: np.ndarray | None = None


@dataclass(frozen=True)
class Method:
    """One method: its function, what must be installed, and how large a call compiles everything (0: nothing to do)."""

    run: Callable[[Task], Found]
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    group: str
    warm_rows: int = 0
    install: str = ""

    @property
    def hint(self) -> str:
        return self.install or "pip install " + " ".join(self.packages)


# --- ours -----------------------------------------------------------------------------------------


def _ours(task: Task, **parameters: Any) -> Any:
    import scalable_gpe as gpe

    parameters = {"n_components": COMPONENTS, "random_state": task.seed, "method": task.search, **parameters}
    return gpe.embed(parameters.pop("X", None) or task.X, progress=False, **parameters)


def _default(task: Task) -> Found:
    return Found(np.asarray(_ours(task).points))


def _one_power(task: Task) -> Found:
    return Found(np.asarray(_ours(task, power=POWER).points))


def _wide(task: Task) -> Found:
    return Found(np.asarray(_ours(task, n_sketch=128).points))


def _stored(task: Task) -> Found:
    """Embed from disk to disk under a memory limit."""
    store = task.scratch / f"{task.n_rows}.zarr"
    source: Any = str(task.path)
    if task.n_rows < len(np.load(task.path, mmap_mode="r")):
        source = str(task.scratch / "few.npy")
        np.save(source, task.X)
    result = _ours(task, X=source, store=str(store), memory_limit=task.memory_limit, resume=False)
    return Found(result.points)  # the sampled rows are read: all of them may not fit under the limit


def _graph(task: Task) -> Found:
    import scalable_gpe as gpe

    graph = gpe.neighbor_graph(task.X, random_state=task.seed, method=task.search)
    return Found(neighbors=np.asarray(graph.indices[:, :NEIGHBORS]))


def _own_eigenvectors(task: Task) -> Found:
    """Eigenvectors of our heat kernel."""
    import scalable_gpe as gpe

    graph = gpe.neighbor_graph(task.X, random_state=task.seed, method=task.search)
    heat = gpe.heat_kernel(gpe.gaussian_kernel(graph))
    points, eigenvalues = gpe.diffusion_map(heat, COMPONENTS)
    return Found(points / np.where(eigenvalues == 0, 1, eigenvalues), eigenvalues)


# --- neighbours alone: what every method needs first ----------------------------------------------


def _pynndescent(task: Task) -> Found:
    return Found(neighbors=_lists(task, 33)[0][:, 1 : NEIGHBORS + 1])


def _lists(task: Task, length: int) -> Any:
    from pynndescent import NNDescent

    return NNDescent(task.X, n_neighbors=length, random_state=task.seed).neighbor_graph


def _faiss(task: Task) -> Found:
    """An inverted file with 4 sqrt(N) lists, of which 16 are read."""
    import faiss

    X = task.X
    index = faiss.index_factory(X.shape[1], f"IVF{max(int(4 * len(X) ** 0.5), 1)},Flat")
    index.cp.seed = task.seed + 1
    index.train(X)
    index.add(X)
    index.nprobe = 16
    return Found(neighbors=index.search(X, 33)[1][:, 1 : NEIGHBORS + 1])


# --- eigenvectors and diffusion maps --------------------------------------------------------------


def _spectral(solver: str) -> Callable[[Task], Found]:
    def run(task: Task) -> Found:
        from sklearn.manifold import SpectralEmbedding

        model = SpectralEmbedding(
            COMPONENTS,
            affinity="nearest_neighbors",
            n_neighbors=NEIGHBORS,
            eigen_solver=solver,
            random_state=task.seed,
            n_jobs=-1,
        )
        return Found(model.fit_transform(task.X))

    return run


def _scanpy(task: Task) -> Found:
    import anndata
    import scanpy

    scanpy.settings.n_jobs = -1
    adata = anndata.AnnData(task.X)
    search = None if task.n_rows < _SCANPY_EXACT else _scanpy_search(task)
    scanpy.pp.neighbors(adata, use_rep="X", random_state=task.seed, transformer=search)
    scanpy.tl.diffmap(adata, n_comps=COMPONENTS + 1, random_state=task.seed)
    time = None
    if task.root is not None:
        adata.uns["iroot"] = task.root
        scanpy.tl.dpt(adata)
        time = np.asarray(adata.obs["dpt_pseudotime"])
    return Found(adata.obsm["X_diffmap"][:, 1:], adata.uns["diffmap_evals"][1:], None, time)


def _scanpy_search(task: Task) -> Any:
    """The search that scanpy starts itself; scanpy 1.11 cannot read the sparse arrays of pynndescent 0.7."""
    from pynndescent import PyNNDescentTransformer
    from scipy.sparse import csr_matrix

    class Search(PyNNDescentTransformer):
        def fit_transform(self, X: Any, y: Any = None) -> Any:
            return csr_matrix(super().fit_transform(X))

    trees, rounds = min(64, 5 + round(task.n_rows**0.5 / 20)), max(5, round(np.log2(task.n_rows)))
    return Search(n_neighbors=NEIGHBORS, n_trees=trees, n_iters=rounds, random_state=task.seed, n_jobs=-1)


def _datafold(task: Task) -> Found:
    from datafold.dynfold import DiffusionMaps
    from datafold.pcfold import GaussianKernel, PCManifold

    points = PCManifold(task.X.astype(np.float64))
    points.optimize_parameters(random_state=task.seed)
    kernel = GaussianKernel(epsilon=points.kernel.epsilon, distance={"cut_off": points.cut_off})
    model = DiffusionMaps(kernel, n_eigenpairs=COMPONENTS + 1).fit(points)
    return Found(np.asarray(model.eigenvectors_)[:, 1:], np.asarray(model.eigenvalues_)[1:])


def _pydiffmap(task: Task) -> Found:
    from pydiffmap.diffusion_map import DiffusionMap

    model = DiffusionMap.from_sklearn(n_evecs=COMPONENTS, neighbor_params={"n_jobs": -1})
    model.fit(task.X)
    # its eigenvalues are those of the generator (P - 1) / epsilon
    return Found(np.asarray(model.evecs), 1 + model.epsilon_fitted * np.asarray(model.evals))


def _adjacency(task: Task) -> Any:
    """The graph of pynndescent's lists, made symmetric: scikit-network needs one."""
    from scipy.sparse import csr_matrix

    lists = _lists(task, NEIGHBORS + 1)[0][:, 1:]
    starts = np.arange(len(lists) + 1) * NEIGHBORS
    one_way = csr_matrix((np.ones(lists.size, bool), lists.ravel(), starts), shape=(len(lists),) * 2)
    return one_way + one_way.T


def _network_spectral(task: Task) -> Found:
    from sknetwork.embedding import Spectral

    model = Spectral(COMPONENTS, normalized=False).fit(_adjacency(task))
    return Found(model.eigenvectors_, model.eigenvalues_)


def _network_projection(task: Task) -> Found:
    from sknetwork.embedding import RandomProjection

    # its defaults, three steps that are halved each time, leave noise: labels of neighbours are those of chance
    model = RandomProjection(COMPONENTS, alpha=1.0, n_iter=POWER, random_walk=True, random_state=task.seed)
    return Found(model.fit_transform(_adjacency(task)))


# --- pictures -------------------------------------------------------------------------------------


def _phate(n_components: int) -> Callable[[Task], Found]:
    def run(task: Task) -> Found:
        import phate

        model = phate.PHATE(n_components=n_components, random_state=task.seed, n_jobs=-1, verbose=0)
        return Found(np.asarray(model.fit_transform(task.X)))

    return run


def _umap(n_components: int) -> Callable[[Task], Found]:
    def run(task: Task) -> Found:
        """UMAP as its users run it, without a seed: with one it uses one thread and takes longer."""
        import umap

        np.random.seed(task.seed)  # noqa: NPY002 (what UMAP without a seed starts from)
        return Found(np.asarray(umap.UMAP(n_components=n_components).fit_transform(task.X)))

    return run


def _opentsne(task: Task) -> Found:
    from openTSNE import TSNE

    return Found(np.asarray(TSNE(n_jobs=-1, random_state=task.seed).fit(task.X)))


def _pacmap(task: Task) -> Found:
    import pacmap

    return Found(np.asarray(pacmap.PaCMAP(n_components=PLANE, random_state=task.seed).fit_transform(task.X)))


def _input(task: Task) -> Found:
    """The rows as they are."""
    return Found(task.X)


_LIBRARY = {
    "modules": (OURS,),
    "packages": ("scalable-gpe",),
    "warm_rows": 5000,
    "install": "pip install -e .",
    "group": OURS,
}
_NETWORK = {"modules": ("sknetwork", "pynndescent"), "packages": ("scikit-network", "pynndescent"), "warm_rows": 5000}

METHODS: dict[str, Method] = {
    "input": Method(_input, (), (), "input"),
    OURS: Method(_default, **_LIBRARY),
    f"{OURS}, n_sketch=128": Method(_wide, **_LIBRARY),
    f"{OURS}, power {POWER}": Method(_one_power, **_LIBRARY),
    f"{OURS}, on disk": Method(_stored, **_LIBRARY),
    f"{OURS}, eigenvectors": Method(_own_eigenvectors, **_LIBRARY),
    f"{OURS}, neighbours alone": Method(_graph, **{**_LIBRARY, "group": "neighbours alone"}),
    "pynndescent": Method(_pynndescent, ("pynndescent",), ("pynndescent",), "neighbours alone", 5000),
    "faiss": Method(_faiss, ("faiss",), ("faiss-cpu",), "neighbours alone"),
    "scikit-network RandomProjection": Method(_network_projection, group="other", **_NETWORK),
    "scanpy diffmap": Method(_scanpy, ("scanpy",), ("scanpy",), "eigenvectors", 8500),
    "scikit-network Spectral": Method(_network_spectral, group="eigenvectors", **_NETWORK),
    "SpectralEmbedding arpack": Method(_spectral("arpack"), ("sklearn",), ("scikit-learn",), "eigenvectors"),
    "SpectralEmbedding lobpcg": Method(_spectral("lobpcg"), ("sklearn",), ("scikit-learn",), "eigenvectors"),
    "SpectralEmbedding amg": Method(_spectral("amg"), ("sklearn", "pyamg"), ("scikit-learn", "pyamg"), "eigenvectors"),
    "pyDiffMap": Method(_pydiffmap, ("pydiffmap",), ("pydiffmap",), "eigenvectors"),
    "datafold": Method(
        _datafold,
        ("datafold",),
        ("datafold",),
        "eigenvectors",
        install="in an environment of its own (it needs scikit-learn 1.2 and numpy 1): python -m venv datafold && "
        "datafold/bin/pip install datafold, then --interpreter datafold=datafold/bin/python",
    ),
    "PHATE": Method(_phate(PLANE), ("phate",), ("phate",), "pictures"),
    f"PHATE, {COMPONENTS} columns": Method(_phate(COMPONENTS), ("phate",), ("phate",), "pictures"),
    "UMAP": Method(_umap(PLANE), ("umap",), ("umap-learn",), "pictures", 4200),
    f"UMAP, {COMPONENTS} columns": Method(_umap(COMPONENTS), ("umap",), ("umap-learn",), "pictures", 4200),
    "openTSNE": Method(_opentsne, ("openTSNE",), ("openTSNE",), "pictures"),
    "PaCMAP": Method(_pacmap, ("pacmap",), ("pacmap", "faiss-cpu"), "pictures", 1000),
}
