# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Single cells: clusters and pseudotime
#
# Two data sets: 700 blood cells that ship with scanpy, and a simulated differentiation in which the pseudotime of
# each cell is known. We embed both in place, cluster, and compare pseudotime with the truth and with scanpy's `diffmap`
# and `dpt`.
#
# ```bash
# pip install "scalable-gpe[anndata,plot]" scanpy igraph
# ```

# %%
import os
import time
import warnings

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
from pynndescent import PyNNDescentTransformer
from scipy.sparse import csr_matrix, vstack
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import scalable_gpe as gpe

warnings.simplefilter("ignore")
N_CELLS = int(os.environ.get("N_CELLS", 100_000))  # the same code runs with a million

# %% [markdown]
# ## Blood cells
#
# `gpe.tl.embed` works on an AnnData object in place, as scanpy's functions do. It takes `obsm["X_pca"]` if there is
# one, and writes `obsm["X_gpe"]`. Everything that was in the object stays.

# %%
blood = sc.datasets.pbmc68k_reduced()
gpe.tl.embed(blood, progress=False)
blood

# %% [markdown]
# The embedding is a representation like any other: scanpy builds its neighbours on it, and clusters.

# %%
sc.pp.neighbors(blood, use_rep="X_gpe", key_added="gpe_neighbors")
sc.tl.leiden(
    blood, neighbors_key="gpe_neighbors", key_added="gpe_leiden", flavor="igraph", n_iterations=2, directed=False
)
sc.tl.umap(blood, neighbors_key="gpe_neighbors", key_added="X_gpe_umap")
for name, clusters in (("embedding, leiden", "gpe_leiden"), ("as it ships, louvain", "louvain")):
    score = adjusted_rand_score(blood.obs["bulk_labels"], blood.obs[clusters])
    print(f"{name}: {blood.obs[clusters].nunique()} clusters, agreement with the cell types {score:.2f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(13, 4.6), layout="constrained")
for ax, key, title in ((axes[0], "bulk_labels", "cell type"), (axes[1], "gpe_leiden", "clusters of the embedding")):
    gpe.plot.scatter(blood.obsm["X_gpe_umap"], color=blood.obs[key], title=title, ax=ax)
    ax.set(xlabel="", ylabel="")

# %% [markdown]
# ## A differentiation whose truth is known
#
# Cells move from a root along a trunk that splits twice. The largest of the five branches has five times as many cells
# as the smallest, and each branch thins out towards its end: the density is uneven, as in real data. 500 genes follow
# the branches through smooth programs, and cells vary around them. What we see are counts: each cell has its own
# sequencing depth, and most entries are zero.


# %%
def differentiation(n_cells, n_genes=500, n_programs=15, seed=0, spread=0.3, block=50_000):
    """Counts of cells on a tree of five branches, with branch and true pseudotime of each cell."""
    shape, rng = np.random.default_rng(seed).spawn(2)  # the tree is the same for any number of cells
    parents, shares = (-1, 0, 0, 1, 1), (0.30, 0.30, 0.20, 0.14, 0.06)
    branch = rng.choice(5, n_cells, p=shares)
    along = rng.beta(1.0, 1.5, n_cells)  # cells become rarer towards the end
    starts, begins = np.zeros(5), np.zeros((5, n_programs))
    straight, bend = shape.standard_normal((2, 5, n_programs)) / np.sqrt(n_programs)
    for one, parent in enumerate(parents):
        if parent >= 0:
            starts[one] = starts[parent] + 1
            begins[one] = begins[parent] + 5 * straight[parent] + 2 * bend[parent]
    genes = shape.standard_normal((n_programs, n_genes)) / 2
    base = shape.normal(-2.5, 1.0, n_genes)
    counts = []
    for start in range(0, n_cells, block):
        rows = slice(start, min(start + block, n_cells))
        s = along[rows, None]
        program = begins[branch[rows]] + 5 * s * straight[branch[rows]] + 2 * s**2 * bend[branch[rows]]
        program += spread * rng.standard_normal(program.shape)
        depth = rng.lognormal(0.0, 0.4, (len(s), 1))
        counts.append(csr_matrix(rng.poisson(depth * np.exp(base + program @ genes)).astype(np.float32)))
    cells = anndata.AnnData(vstack(counts, format="csr"))
    cells.obs["branch"] = pd.Categorical([f"branch {one}" for one in branch])
    cells.obs["true_time"] = starts[branch] + along
    return cells


cells = differentiation(N_CELLS)
zeros = 1 - cells.X.nnz / np.prod(cells.shape)
print(f"{cells.n_obs:,} cells, {cells.n_vars} genes, {zeros:.0%} zeros")
print(cells.obs["branch"].value_counts(normalize=True).round(2).to_dict())

# %% [markdown]
# The usual preparation: depth, logarithm, principal components. The root is the earliest cell; in practice, a marker
# gene shows where it is.

# %%
sc.pp.normalize_total(cells)
sc.pp.log1p(cells)
sc.pp.pca(cells, n_comps=30)
root = int(cells.obs["true_time"].argmin())

# %% [markdown]
# ### Ours
#
# Neighbours, heat kernel and all scales in one call; pseudotime is the distance from the root in the embedding. Twice:
# with defaults, and with 128 random columns of which the 32 principal axes are kept, which has less noise. (Both
# libraries compile at their first call, so a small call comes before the clock starts.)


# %%
def timed(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def embedded(adata, key, **parameters):
    gpe.tl.embed(adata, key_added=key, progress=False, **parameters)
    gpe.tl.pseudotime(adata, root, key=key)


few = cells[:9000].copy()
gpe.tl.embed(few, progress=False, method="cells")
seconds = {
    "gpe": timed(lambda: embedded(cells, "gpe")),
    "wide": timed(lambda: embedded(cells, "wide", n_sketch=128)),
}
print(f"{cells.n_obs:,} cells: {seconds['gpe']:.0f} s; with n_sketch=128 {seconds['wide']:.0f} s")

# %% [markdown]
# ### scanpy
#
# `neighbors`, `diffmap` and `dpt`, with scanpy's defaults. (scanpy 1.11 cannot read the sparse arrays that pynndescent
# 0.7 returns, so we hand it the same search with a matrix.)


# %%
class Search(PyNNDescentTransformer):
    def fit_transform(self, X, y=None):
        return csr_matrix(super().fit_transform(X))


search = Search(n_neighbors=15, random_state=0, n_jobs=-1)
sc.pp.neighbors(few, use_rep="X_pca", transformer=search)


def diffused():
    sc.pp.neighbors(cells, use_rep="X_pca", transformer=search)
    sc.tl.diffmap(cells)
    cells.uns["iroot"] = root
    sc.tl.dpt(cells)


seconds["dpt"] = timed(diffused)
print(f"neighbors, diffmap and dpt: {seconds['dpt']:.0f} s")

# %% [markdown]
# ### Against the truth
#
# *Order* is Spearman's correlation of pseudotime with the truth, for all cells and within branches (the mean of five).
# *Clusters* is the agreement (NMI) of k-means with the branches, in the columns that each method gives. *Seconds* are
# those of one run on two busy cores; [the comparison with others](../developers/peers.md) was measured more carefully.


# %%
def order(key):
    values, truth = cells.obs[key].to_numpy(), cells.obs["true_time"].to_numpy()
    inside = [spearmanr(values[rows], truth[rows])[0] for rows in cells.obs.groupby("branch").indices.values()]
    return {"order, all cells": spearmanr(values, truth)[0], "order, within branches": np.mean(inside)}


def clusters(points):
    found = KMeans(5, n_init=5, random_state=0).fit_predict(points / points.std())
    return {"clusters": normalized_mutual_info_score(cells.obs["branch"], found)}


def row(key, representation):
    return {**order(f"{key}_pseudotime"), **clusters(cells.obsm[representation]), "seconds": seconds[key]}


cells.obsm["X_diffmap"] = cells.obsm["X_diffmap"][:, 1:]  # the first one is constant
pd.DataFrame(
    {
        "scalable_gpe": row("gpe", "X_gpe"),
        "scalable_gpe, n_sketch=128": row("wide", "X_wide"),
        "scanpy": row("dpt", "X_diffmap"),
        "principal components": clusters(cells.obsm["X_pca"]),
    }
).T.round(3)

# %% [markdown]
# The picture shows the first two axes. Below, cells are put in the order of their pseudotime: a perfect one would rise
# steadily along each branch.

# %%
branch = cells.obs["branch"].to_numpy().astype(str)
figure, axes = plt.subplots(2, 2, figsize=(12, 10), layout="constrained")
gpe.plot.scatter(cells.obsm["X_pca"], color=branch, title="principal components", legend=False, ax=axes[0, 0])
gpe.plot.scatter(cells.obsm["X_wide"], components=(0, 1), color=branch, title="the embedding", ax=axes[0, 1])
sample = np.random.default_rng(0).permutation(cells.n_obs)[:10_000]
for ax, key, title in ((axes[1, 0], "wide_pseudotime", "scalable_gpe"), (axes[1, 1], "dpt_pseudotime", "scanpy dpt")):
    values = np.column_stack([cells.obs["true_time"], 3 * cells.obs[key].rank(pct=True)])[sample]
    gpe.plot.scatter(values, components=(0, 1), color=branch[sample], title=title, legend=False, ax=ax)
    ax.set(xlabel="true pseudotime", ylabel="order by pseudotime")

# %% [markdown]
# ## What to take from it
#
# - The embedding is stored in the object next to scanpy's results, and scanpy's functions work on it.
# - Pseudotime needs no eigenvectors: it is a distance in the embedding, and its random error is known
#   (`uns["gpe"]["pseudotime_error"]`). More columns make it smaller; here the default has enough of them.
# - Branches that touch are not clusters: k-means cuts them somewhere, in any representation.
# - At 100,000 cells the time is about that of scanpy, and the order is better, most of all within branches.
# - The cost grows nearly in proportion to the number of cells, and
#   [the data need not fit in memory](larger-than-memory.ipynb).
