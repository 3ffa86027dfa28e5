"""A scanpy session with the embedding: neighbours of X_gpe, clusters, UMAP, pseudotime, a file; nothing is lost.

    pip install "scalable-gpe[anndata,plot]" scanpy igraph
    python examples/scanpy_workflow.py --out scanpy.png

The data are the 700 blood cells that ship with scanpy. Results go to keys of their own, so that the graph, the UMAP
and the clusters that were in the object before are still there.
"""

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import scalable_gpe as gpe

SMALL = 15  # points of text; the figure is shown at half its size
KEY = "gpe_neighbors"
# ten colours that people with any kind of colour vision can tell apart (seaborn's "colorblind")
COLORS = ["#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9"]
ROOT = "CD4+/CD45RA+/CD25- Naive T"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    missing = [name for name in ("scanpy", "igraph") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"this example needs {' and '.join(missing)}: pip install scanpy igraph")
        return
    import anndata
    import scanpy
    from sklearn.metrics import adjusted_rand_score

    adata = scanpy.datasets.pbmc68k_reduced()
    gpe.tl.embed(adata, progress=False)
    root = adata.obs_names[adata.obs["bulk_labels"] == ROOT][0]
    gpe.tl.pseudotime(adata, root)
    scanpy.pp.neighbors(adata, use_rep="X_gpe", key_added=KEY)
    scanpy.tl.leiden(adata, neighbors_key=KEY, key_added="gpe_leiden", flavor="igraph", n_iterations=2, directed=False)
    scanpy.tl.umap(adata, neighbors_key=KEY, key_added="X_gpe_umap")

    for clusters in ("gpe_leiden", "louvain"):
        agreement = adjusted_rand_score(adata.obs["bulk_labels"], adata.obs[clusters])
        print(f"{clusters}: {adata.obs[clusters].nunique()} clusters, agreement with bulk_labels {agreement:.2f}")
    draw(adata, root).savefig(options.out, dpi=100, facecolor="white")
    adata.write_h5ad(options.file)
    print(anndata.read_h5ad(options.file))


def draw(adata: Any, root: str) -> Any:
    """Cell types beside pseudotime, on the UMAP of the embedding."""
    import matplotlib.pyplot as plt
    import scanpy

    with plt.rc_context({"font.size": SMALL, "axes.titlesize": SMALL + 3, "legend.fontsize": SMALL}):
        figure, axes = plt.subplots(1, 2, figsize=(16, 6.4))
        random = adata[np.random.default_rng(0).permutation(adata.n_obs)].copy()  # no cell type hides another
        common = {"basis": "X_gpe_umap", "size": 60, "frameon": False, "show": False}
        scanpy.pl.embedding(random, color="bulk_labels", title="cell type", palette=COLORS, ax=axes[0], **common)
        scanpy.pl.embedding(
            random, color="gpe_pseudotime", title="pseudotime from a naive T cell (x)", vmax="p99", ax=axes[1], **common
        )
        axes[1].scatter(*adata[root].obsm["X_gpe_umap"].T, marker="x", s=150, linewidth=3, color="red")
        figure.tight_layout()
    return figure


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("scanpy.png"), help="the picture")
    parser.add_argument("--file", type=Path, default=Path("cells.h5ad"), help="the object that is written")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
