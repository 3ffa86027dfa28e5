"""How often the nearest rows share a label: raw data, embedding and diffusion map of scikit-learn's digits."""

import numpy as np
from measure import Row

import scalable_gpe as gpe

_NEAREST = 10


def label_agreement(n_components: int = 16, power: int = 16) -> list[Row]:
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    embedding = gpe.embed(X, n_components=n_components, power=power, progress=False)
    coordinates, _ = gpe.diffusion_map(embedding.heat, n_components, power=1)
    spaces = {
        "raw data, 64 columns": X,
        f"embedding, {n_components} columns, power {power}": embedding.points,
        f"diffusion map, {n_components} columns": coordinates,
    }
    return [Row(f"digits, 10-NN label agreement: {name}", agreement(Y, labels), "") for name, Y in spaces.items()]


def agreement(points: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=_NEAREST).fit(points).kneighbors(return_distance=False)
    return float((labels[nearest] == labels[:, None]).mean())
