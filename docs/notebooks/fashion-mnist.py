# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Images: from raw rows to clusters, few labels and a poster
#
# Fashion-MNIST: 70,000 images of garments, 784 grey values each, ten kinds. We embed the raw rows, find clusters
# without labels, classify with 5 labelled images per kind, and draw a poster with UMAP that starts from our graph.
#
# The four files are at https://github.com/zalandoresearch/fashion-mnist (set `FASHION_MNIST` to their folder), and in
# Debian's package `dataset-fashion-mnist`.
#
# ```bash
# pip install "scalable-gpe[plot]" umap-learn pandas
# ```

# %%
import gzip
import os
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import umap
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import KNeighborsClassifier

import scalable_gpe as gpe

warnings.simplefilter("ignore")
FOLDER = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
N_IMAGES = int(os.environ.get("N_IMAGES", 70_000))
KINDS = ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]


def read(kind, start):
    files = [FOLDER / f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k")]
    return np.frombuffer(b"".join(gzip.decompress(file.read_bytes())[start:] for file in files), np.uint8)


images = read("images-idx3", 16).reshape(-1, 784)[:N_IMAGES].astype(np.float32)
labels = read("labels-idx1", 8)[:N_IMAGES]
print(images.shape, dict(zip(KINDS, np.bincount(labels).tolist(), strict=True)))

# %%
figure, axes = plt.subplots(1, 10, figsize=(12, 1.6))
for ax, kind in zip(axes, range(10), strict=True):
    ax.imshow(255 - images[np.flatnonzero(labels == kind)[1]].reshape(28, 28), cmap="gray")
    ax.set_title(KINDS[kind], fontsize=10)
    ax.axis("off")

# %% [markdown]
# ## Embed
#
# The raw rows, without scaling and without principal components. `n_sketch=128` computes 128 random columns and keeps
# the 32 principal axes of them. (Times on this page were measured on two busy cores.)

# %%
gpe.embed(images[:3000], method="cells", n_sketch=128, progress=False)  # compiles
began = time.perf_counter()
result = gpe.embed(images, n_sketch=128, progress=False)
print(f"{len(images):,} x 784 in {time.perf_counter() - began:.0f} s")
result

# %% [markdown]
# The report says how far to trust it: recall of the neighbour lists, and how long heat takes to cross the data.

# %%
{key: result.report[key] for key in ("recall", "n_isolated", "n_connected_components", "horizon", "kept_variance")}

# %% [markdown]
# ## Clusters and few labels
#
# k-means with ten clusters, and the nearest of five labelled images per kind (the mean of ten draws): in the pixels, in
# 32 principal components, and in the 32 columns of the embedding.


# %%
def few_labels(points, n_labelled=5, n_draws=10):
    """Accuracy of the nearest labelled image."""
    scores = []
    for draw in range(n_draws):
        order = np.random.default_rng(draw).permutation(len(points))
        known = np.concatenate([order[labels[order] == kind][:n_labelled] for kind in range(10)])
        others = np.setdiff1d(order[:10_000], known)
        model = KNeighborsClassifier(1).fit(points[known], labels[known])
        scores.append(model.score(points[others], labels[others]))
    return {"few labels": np.mean(scores), "few labels, standard deviation": np.std(scores)}


def clusters(points):
    found = KMeans(10, n_init=3, random_state=0).fit_predict(points / points.std())
    return {"clusters (NMI)": normalized_mutual_info_score(labels, found)}


features = {
    "pixels": images,
    "32 principal components": PCA(32, random_state=0).fit_transform(images),
    "embedding": result.points,
}
pd.DataFrame({name: {**clusters(points), **few_labels(points)} for name, points in features.items()}).T.round(3)

# %% [markdown]
# ## New images
#
# `transform` places new images in the same embedding. Here, images that are already in it, with noise: they land near
# where the clean ones are.

# %%
chosen = np.random.default_rng(1).choice(len(images), min(500, len(images)), replace=False)
noisy = images[chosen] + np.random.default_rng(2).normal(0, 10, (len(chosen), 784)).astype(np.float32)
placed = result.transform(noisy)
own = np.linalg.norm(placed - result.points[chosen], axis=1)
other = np.linalg.norm(placed - result.points[np.roll(chosen, 1)], axis=1)
print(f"median distance to the clean image {np.median(own):.3g}, to another image {np.median(other):.3g}")

# %% [markdown]
# ## The poster
#
# Two axes cannot keep ten kinds apart; UMAP is made for that. It takes our neighbour lists and starts from our
# principal plane, so that groups start near their positions there. Cluster in the embedding, and draw with UMAP.

# %%
plane, shares = result.principal(2)
began = time.perf_counter()
poster = umap.UMAP(precomputed_knn=result.graph.to_umap(), init=plane, random_state=0).fit_transform(images)
print(f"UMAP from our graph: {time.perf_counter() - began:.0f} s, compilation included")

figure, axes = plt.subplots(1, 2, figsize=(14, 6.5), layout="constrained")
names = np.array(KINDS)[labels]
gpe.plot.scatter(plane, color=names, title="principal plane of the embedding", legend=False, ax=axes[0])
gpe.plot.scatter(poster, color=names, title="UMAP from our graph", ax=axes[1])
for ax in axes:
    ax.set(xlabel="", ylabel="")
