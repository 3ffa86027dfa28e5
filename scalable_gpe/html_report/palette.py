"""Colours of the explorer and of the density pictures."""

from collections.abc import Sequence

import numpy as np

from scalable_gpe.colors import channels

BACKGROUND = "#0f0f17"  # dark: single points stay visible in every colour
RAMP = (  # viridis without its darkest part
    *("#414487", "#375a8c", "#2e6f8e", "#26828e", "#1f958b", "#22a884"),
    *("#3bbb75", "#63cb5f", "#95d840", "#cae11f", "#fde725"),
)


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
    stops = np.array([channels(color) for color in RAMP], float)
    at = np.linspace(0, len(stops) - 1, 255)
    ramp = np.stack([np.interp(at, np.arange(len(stops)), channel) for channel in stops.T], axis=1)
    return np.vstack([channels(BACKGROUND), np.round(ramp)]).astype(np.uint8)
