"""What each important parameter does: one picture per parameter, on points with a loop, branches and clusters.

    python examples/gallery.py --out docs/figures/gallery

Panels are principal planes. Each is turned and mirrored so that it lies on the plane of the default as well as it can:
the coordinates of an embedding have no orientation of their own.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import orthogonal_procrustes

import scalable_gpe as gpe

Arguments = Mapping[str, Any]
# picture -> title of a panel -> arguments of embed
PICTURES: dict[str, dict[str, Arguments]] = {
    "power": {f"power={power!r}": {"power": power} for power in (16, 128, 1024, "all")},
    "horizon": {f"horizon={horizon!r}": {"horizon": horizon} for horizon in (64, 256, 4096, "auto")},
    "epsilon": {f"epsilon={epsilon!r}": {"epsilon": epsilon} for epsilon in (0.2, 1.0, "auto", 20.0)},
    "n_neighbors": {f"n_neighbors={number}": {"n_neighbors": number} for number in (4, 10, 32, 300)},
    "n_components": {
        "n_components=8": {"n_components": 8},
        "n_components=32": {"n_components": 32},
        "n_components=128": {"n_components": 128},
        "n_components=8\nn_sketch=128": {"n_components": 8, "n_sketch": 128},
    },
    "normalization": {
        f"{name!r}\npower={power!r}": {"normalization": name, "power": power}
        for power in ("all", 256)
        for name in ("bistochastic", "symmetric")
    },
    "sketch": {
        f"{kind!r}\nrandom_state={seed}": {"sketch": kind, "random_state": seed}
        for kind in ("gaussian", "bernoulli")
        for seed in (0, 1)
    },
}

AUTOMATIC = {"epsilon": ".2g", "horizon": "d"}  # written into titles, in these formats


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    X = gpe.datasets.branches(options.points)
    parts, _ = gpe.datasets.branches_truth(options.points)
    reference, _ = gpe.embed(X).principal(2)
    for name in options.only or PICTURES:
        planes = {}
        for title, given in PICTURES[name].items():
            n_neighbors = min(given.get("n_neighbors", 16), options.points - 1)
            result = gpe.embed(X, **{**given, "n_neighbors": n_neighbors})
            chosen = [f" ({result.report[one]:{form}})" for one, form in AUTOMATIC.items() if given.get(one) == "auto"]
            planes["".join([title, *chosen])] = laid_on(reference, result.principal(2)[0])
        path = options.out / f"{name}.png"
        draw(planes, parts).savefig(path, dpi=125)
        print(path)


def laid_on(reference: np.ndarray, plane: np.ndarray) -> np.ndarray:
    """Turn and mirror a plane so that it lies on the reference."""
    centred = plane - np.median(plane, axis=0)
    rotation, _ = orthogonal_procrustes(centred, reference - np.median(reference, axis=0))
    turned: np.ndarray = centred @ rotation
    return turned


def draw(planes: Mapping[str, np.ndarray], parts: np.ndarray) -> Any:
    """One row of planes, coloured by part."""
    from scalable_gpe.plot.figures import new_figure

    figure = new_figure(2.1 * len(planes) + 1.1, 2.55)
    axes = figure.subplots(1, len(planes))
    for ax, (title, plane) in zip(axes, planes.items(), strict=True):
        gpe.plot.scatter(plane, color=parts, title=title, legend=ax is axes[-1], ax=ax)
        ax.set(xlabel="", ylabel="")
    figure.set_facecolor("white")
    return figure


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=6000)
    parser.add_argument("--out", type=Path, default=Path("gallery"), help="folder of the pictures")
    parser.add_argument("--only", nargs="+", choices=list(PICTURES), help="some of the pictures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
