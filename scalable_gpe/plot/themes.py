"""How pictures look: on white as those of scanpy and UMAP, or on a dark background."""

from dataclasses import dataclass

from scalable_gpe.checks import check_choice
from scalable_gpe.colors import DENSITIES, THEMES


@dataclass(frozen=True)
class Theme:
    """Colours of a picture.

    Attributes
    ----------
    name : str
        Which palette of labels belongs to it.
    background, ink, soft : str
        Behind everything; of texts; of the axes.
    single : str
        Colour of points that no column colours.
    density : tuple of str
        From one point per pixel to the most.
    numbers : (float, float)
        The part of viridis that can be seen on the background.
    faintest : float
        Opacity of a coloured pixel with one point.
    """

    name: str
    background: str
    ink: str
    soft: str
    single: str
    density: tuple[str, ...]
    numbers: tuple[float, float]
    faintest: float


_LIGHT = Theme(
    name="light",
    background="#ffffff",
    ink="#262626",
    soft="#8c8c8c",
    single="#2f6ea5",
    density=DENSITIES["light"],
    numbers=(0.0, 0.95),
    faintest=0.45,
)
_DARK = Theme(
    name="dark",
    background="#0f0f17",
    ink="#f2f2f2",
    soft="#9a9aa5",
    single="#63cb5f",
    density=DENSITIES["dark"],
    numbers=(0.2, 1.0),
    faintest=0.6,
)


def theme_of(name: str) -> Theme:
    """The theme with a name."""
    return {"light": _LIGHT, "dark": _DARK}[check_choice(name, THEMES, "theme")]
