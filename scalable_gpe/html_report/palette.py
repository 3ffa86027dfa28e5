"""Colours of the explorer and of the density pictures."""

from collections.abc import Sequence

import numpy as np

from scalable_gpe.colors import DENSITIES, channels, color_ramp

BACKGROUND = "#ffffff"
COUNTS = DENSITIES["light"]  # from one point per pixel to the most
NUMBERS = DENSITIES["dark"]  # viridis, of a column of numbers


def style_rules(labels: Sequence[str] = ()) -> str:
    """CSS rules of these colours, and of those of labels: inline style attributes would need a weaker policy."""
    ramps = {"#ramp": NUMBERS, "#ramp.counts": COUNTS}
    return "\n".join(
        [
            f":root {{ --canvas: {BACKGROUND}; }}",
            *(
                f"{name} {{ background: linear-gradient(to right, {', '.join(ramp)}); }}"
                for name, ramp in ramps.items()
            ),
            *(f".label{number} {{ background: {color}; }}" for number, color in enumerate(labels)),
            "",
        ]
    )


def density_palette() -> np.ndarray:
    """256 x 3 colours: the background, then the ramp in 255 steps."""
    return np.vstack([channels(BACKGROUND), color_ramp(COUNTS, 255)]).astype(np.uint8)
