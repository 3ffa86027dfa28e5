"""Colours of the explorer and of the density pictures."""

from collections.abc import Sequence

import numpy as np

from scalable_gpe.colors import DENSITIES, channels, color_ramp

BACKGROUND = "#0f0f17"  # dark: single points stay visible in every colour
RAMP = DENSITIES["dark"]


def style_rules(labels: Sequence[str] = ()) -> str:
    """CSS rules of these colours, and of those of labels: inline style attributes would need a weaker policy."""
    ramps = {"#ramp": RAMP, "#ramp.counts": RAMP[1:]}  # counts start one step up, where a single point is visible
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
    return np.vstack([channels(BACKGROUND), color_ramp(RAMP, 255)]).astype(np.uint8)
