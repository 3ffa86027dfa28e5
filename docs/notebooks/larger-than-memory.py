# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Larger than memory: from disk to disk
#
# The rows are on disk, the embedding goes to disk, and the process keeps to a memory limit. Afterwards dask and xarray
# read it lazily. The code is meant for ten million rows, with a limit of 2 GB; the output on this page
# is of **one million** rows under 1 GB, on two busy cores. These data are long and thin: the horizon is 4096, so that
# they take several times as long as the smooth rows of the README.
#
# ```bash
# pip install "scalable-gpe[plot]" xarray
# ```

# %%
import os
import subprocess
import sys
import warnings
from pathlib import Path

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
import zarr

import scalable_gpe as gpe

warnings.simplefilter("ignore")
N_ROWS = int(os.environ.get("N_ROWS", 1_000_000))
LIMIT = "2GB" if N_ROWS > 3_000_000 else "1GB"

# %% [markdown]
# ## Rows on disk
#
# `datasets.write` generates points block by block into a zarr array: a loop, a stem that branches twice, and clusters
# at the ends, in 30 dimensions. Your own data may be a `.npy` file, zarr, parquet, an `.h5ad` file, or a dask array.

# %%
gpe.datasets.write("points.zarr", gpe.datasets.branches, N_ROWS)
points = zarr.open_array("points.zarr")
print(f"{points.shape[0]:,} x {points.shape[1]}, {points.nbytes / 1e9:.2f} GB; in chunks of {points.chunks[0]:,} rows")

# %% [markdown]
# ## What will it need?
#
# `estimate` answers before any work: disk, sweeps, panels of columns, and the smallest limit that is possible.

# %%
plan = gpe.estimate(N_ROWS, 30, memory_limit=LIMIT)
{key: plan[key] for key in ("memory", "disk", "panels", "sweeps", "smallest_limit")}

# %% [markdown]
# ## Embed under a limit
#
# The limit is the resident memory of the whole process, interpreter and libraries included, so we start a fresh one:
# this notebook has already imported many libraries. The command line does the same as `gpe.embed` with a store and a
# limit. Interrupted runs resume when the same command is given again.

# %%
program = Path(sys.executable).with_name("scalable-gpe")
command = ["embed", "points.zarr", "run.zarr", "--memory-limit", LIMIT]
_ = subprocess.run([program, *command], check=True, capture_output=True)

result = gpe.open("run.zarr")
report = result.report
print(f"{report['total_seconds']:.0f} s, peak {report['peak_memory'] / 1e6:.0f} MB under a limit of {LIMIT}")
print({stage: round(seconds) for stage, seconds in report["stage_seconds"].items()})
print(f"recall {report['recall']:.3f} +- {report['recall_error']:.3f}, horizon {report['horizon']}")

# %%
files = [file for file in Path("run.zarr").rglob("*") if file.is_file()]
print(f"the store: {sum(file.stat().st_size for file in files) / 1e9:.2f} GB in {len(files):,} files")

# %% [markdown]
# ## dask
#
# `result.points` is a zarr array. dask reads it in pieces of 65,536 rows, and computes without loading it whole.

# %%
embedding = da.from_zarr(result.points, chunks=(65_536, 32))
print(embedding)
print("standard deviation of the first columns:", embedding.std(axis=0)[:4].compute().round(3))

# %% [markdown]
# Principal axes of all rows, out of core: a 32 x 32 matrix is all that is held.

# %%
centred = embedding - embedding.mean(axis=0)
values, vectors = np.linalg.eigh((centred.T @ centred).compute() / N_ROWS)
print("share of the variance on the first axes:", (values[::-1] / values.sum())[:5].round(3))
plane = centred @ vectors[:, :-3:-1]
plane

# %% [markdown]
# ## xarray
#
# Names for rows and columns, and selections that load only what they need.

# %%
array = xr.DataArray(embedding, dims=("row", "component"), name="gpe").assign_coords(component=np.arange(32))
array

# %%
near = np.sqrt(((array - array.sel(row=0)) ** 2).sum("component"))
nearest = near.compute().argsort()[:5]
print("the rows nearest to row 0:", nearest.values)

# %% [markdown]
# ## A picture of all rows
#
# Density of all rows in the principal plane; `plane` is computed block by block.

# %%
figure, ax = plt.subplots(figsize=(7, 6), layout="constrained")
gpe.plot.scatter(plane.compute().astype(np.float32), components=(0, 1), ax=ax)
ax.set(xlabel="first axis", ylabel="second axis", title=f"{N_ROWS:,} rows")
plt.show()
