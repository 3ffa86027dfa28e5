"""Colours of the explorer and of the density pictures."""

import numpy as np

BACKGROUND = "#0f0f17"  # dark: single points stay visible in every colour
RAMP = (  # viridis without its darkest part
    *("#414487", "#375a8c", "#2e6f8e", "#26828e", "#1f958b", "#22a884"),
    *("#3bbb75", "#63cb5f", "#95d840", "#cae11f", "#fde725"),
)
LABELS = (  # the hues of matplotlib's tab10, bright enough for the background, then paler
    *("#4e9bd1", "#ff9a3c", "#5fc35f", "#f0605f", "#b18ad6", "#b07d6c", "#f19ad2", "#a5a5a5", "#d3d347", "#3fd0df"),
    *("#a6cee8", "#ffc78f", "#a9e0a0", "#ffadaa", "#d0bbe8", "#d3b3a8", "#fbc7e5", "#d0d0d0", "#e6e69c", "#a9e6ee"),
)


def style_rules() -> str:
    """CSS rules of these colours: inline style attributes would need a weaker policy."""
    ramps = {"#ramp": RAMP, "#ramp.counts": RAMP[1:]}  # counts start one step up, where a single point is visible
    return "\n".join(
        [
            f":root {{ --canvas: {BACKGROUND}; }}",
            *(
                f"{name} {{ background: linear-gradient(to right, {', '.join(ramp)}); }}"
                for name, ramp in ramps.items()
            ),
            *(f".label{number} {{ background: {color}; }}" for number, color in enumerate(LABELS)),
            "",
        ]
    )


def density_palette() -> np.ndarray:
    """256 x 3 colours: the background, then the ramp in 255 steps."""
    stops = np.array([_channels(color) for color in RAMP], float)
    at = np.linspace(0, len(stops) - 1, 255)
    ramp = np.stack([np.interp(at, np.arange(len(stops)), channel) for channel in stops.T], axis=1)
    return np.vstack([_channels(BACKGROUND), np.round(ramp)]).astype(np.uint8)


def _channels(color: str) -> list[int]:
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]
