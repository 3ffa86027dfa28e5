"""Densities as PNG: the few lines that spare pages and notebooks a dependency on an image library."""

import base64
import struct
import zlib

import numpy as np

from scalable_gpe.colors import count_ramp


def density_picture(counts: np.ndarray) -> str:
    """Address of a picture of points per pixel, on a log scale on white; the last axis of `counts` goes up."""
    shades = np.zeros(counts.shape, np.uint8)
    many = np.log1p(max(np.quantile(counts[counts > 0], 0.99), 1))  # a few crowded pixels would make the others pale
    shades[counts > 0] = 1 + np.round(np.minimum(np.log1p(counts[counts > 0]) / many, 1) * 254).astype(np.uint8)
    palette = np.vstack([[255, 255, 255], count_ramp(255)]).round().astype(np.uint8)
    return data_address(png(np.ascontiguousarray(shades.T[::-1]), palette))


def png(shades: np.ndarray, palette: np.ndarray) -> bytes:
    """PNG of a 2-D uint8 array whose entries are rows of an (at most 256) x 3 uint8 palette."""
    height, width = shades.shape
    lines = b"".join(b"\0" + row.tobytes() for row in shades)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),  # 8 bits, palette
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def data_address(picture: bytes, kind: str = "png") -> str:
    """Address that holds the picture itself, for the ``src`` of an image."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode("ascii")
