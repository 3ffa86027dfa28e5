"""scalable-gpe warm-up: compile all loops once, so that no later process waits for the compiler."""

import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

from scalable_gpe.cli.command import command
from scalable_gpe.cli.console import show, table, tell
from scalable_gpe.formatting import in_time


@command(examples=("scalable-gpe warm-up",))
def warm_up() -> None:
    """Compile all loops once, for an image or a login node: later processes find the machine code on disk."""
    from scalable_gpe.loops import sparse

    began = time.perf_counter()
    tell("compiling ...")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of points that were not made to be embedded
        _compile_all(Path(folder))
    seconds, cache = time.perf_counter() - began, sparse.product.stats.cache_path
    lines = [("time", in_time(seconds)), ("cache", str(cache))]
    show(table("all loops are compiled", lines), {"seconds": seconds, "cache": str(cache)})


def _compile_all(folder: Path) -> None:
    """Embed with each search, normalisation, bandwidth, sketch and precision; place new points; audit."""
    import numpy as np

    import scalable_gpe as gpe

    X = gpe.datasets.patches(3000, 20, random_state=0)
    embed = partial(gpe.embed, n_neighbors=10, progress=False)
    embed(X)
    hard = np.random.default_rng(0).standard_normal((3000, 20))  # trees alone do not find their neighbours
    result = embed(hard, method="cells", recall=1.0, power=[2, 64, "all"], n_sketch=32, store=folder / "cells.zarr")
    result.transform(hard[:100] + 0.01)
    gpe.audit(result, n_probes=50, n_exact=4)
    embed(X[:, :3], method="kdtree", epsilon="local", normalization="symmetric", sketch="bernoulli")
    local = embed(X, epsilon="local", precision="double", power=[16, "all"])
    local.transform(X[:100] + 0.01)
    embed(np.concatenate([X, X[:200]]), metric="cosine")
    gpe.diffusion_map(result.heat, 4)
    gpe.spectrum(result.heat)
    _compile_for_clusters(folder / "scratch.zarr")


def _compile_for_clusters(path: Path) -> None:
    """Write and read a scratch panel, as only the workers of a cluster do."""
    import numpy as np

    from scalable_gpe.loops import sparse
    from scalable_gpe.storage.zarr_store import ZarrStore

    table = ZarrStore(path).scratch_table("panel", (512, 16), np.float32, 512)
    table.write(0, np.ones((512, 16), np.float32))
    table.read(0, 256)
    sparse.touched(np.arange(512, dtype=np.int32), 256, np.zeros(2, np.bool_))
