"""A poster of Fashion-MNIST: the principal plane of the embedding, then UMAP from its graph, started in that plane.

    pip install umap-learn
    python examples/umap_poster.py --out umap.png

It prints the seconds of UMAP alone and from our graph, and how many neighbours each plane keeps (trustworthiness). UMAP
is compiled before the clock starts. `--tsne` adds t-SNE of our heat kernel (pip install "scalable-gpe[tsne]").
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fashion_mnist import FOLDER, GARMENTS, load
from PIL import Image
from sklearn.manifold import trustworthiness

import scalable_gpe as gpe


@dataclass(frozen=True)
class Plane:
    """Points in a plane, the seconds that they took, and what the reader should know."""

    title: str
    points: np.ndarray
    seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    X, labels = load(options.folder)
    X, labels = X[: options.rows], labels[: options.rows]
    rows = np.random.default_rng(0).choice(len(X), min(options.sample, len(X)), replace=False)

    result = gpe.embed(X, n_components=16, n_sketch=128)
    start, _ = result.principal(2)
    print(f"{len(X):,} images; embedding {result.report['total_seconds']:.1f} s (graph {_graph_seconds(result):.1f} s)")

    umap = _compiled_umap(X)
    alone = _timed("UMAP alone", lambda: umap(X))
    ours = _timed("UMAP from our graph", lambda: umap(X, precomputed_knn=result.graph.to_umap(), init=start))
    shown = [Plane("principal plane of the embedding", start, 0.0), ours]
    if options.tsne:
        shown.append(_timed("t-SNE of our heat kernel", lambda: _tsne(result, start)))
    for plane in [alone, *shown]:
        trust = trustworthiness(X[rows], plane.points[rows], n_neighbors=10)
        print(f"{plane.title}: {plane.seconds:.1f} s, trustworthiness {trust:.4f}")
    print(f"from our graph, UMAP takes {ours.seconds / alone.seconds:.2f} of its time")
    _draw(shown, np.array(GARMENTS)[labels], options.out)


def _graph_seconds(result: gpe.Embedding) -> float:
    return float(result.report["stage_seconds"]["graph"])


def _compiled_umap(X: np.ndarray) -> Callable[..., np.ndarray]:
    """UMAP with a seed, which makes it reproducible and uses one thread; a small run compiles it."""
    import umap

    def run(points: np.ndarray, **options: Any) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a seed means one thread, and a given graph no transform
            return np.asarray(umap.UMAP(random_state=0, **options).fit_transform(points))

    run(X[:4200], n_epochs=2)  # more than 4096 rows, from which on UMAP searches with pynndescent
    return run


def _tsne(result: gpe.Embedding, start: np.ndarray) -> np.ndarray:
    import openTSNE

    first = openTSNE.initialization.rescale(start.astype(np.float64))
    return np.asarray(openTSNE.TSNE(initialization=first, n_jobs=-1).fit(affinities=result.to_opentsne()))


def _timed(title: str, work: Callable[[], np.ndarray]) -> Plane:
    began = time.perf_counter()
    points = work()
    return Plane(title, points, time.perf_counter() - began)


def _draw(planes: Sequence[Plane], names: np.ndarray, path: Path) -> None:
    figure, panels = plt.subplots(1, len(planes), figsize=(5 * len(planes) + 1.4, 5), layout="constrained")
    for panel, plane in zip(panels, planes, strict=True):
        last = plane is planes[-1]
        gpe.plot.scatter(plane.points, color=names, title=plane.title, legend=last, ax=panel)
        panel.set(xlabel="", ylabel="")
        panel.spines[["left", "bottom"]].set_visible(False)
    figure.set_dpi(130)
    figure.canvas.draw()
    # 128 colours: a third of the bytes
    Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB").quantize(128).save(path, optimize=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--rows", type=int, default=70_000, help="only the first so many images")
    parser.add_argument("--sample", type=int, default=5_000, help="images whose neighbours are looked at")
    parser.add_argument("--tsne", action="store_true", help="add t-SNE of our heat kernel")
    parser.add_argument("--out", type=Path, default=Path("umap.png"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
