"""The sampled view: pictures of all rows, samples that are random and fit."""

import base64
import struct
import zlib

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.html_report.view import MAX_POWERS, sampled_view, spread
from scalable_gpe.png import data_address, png


@pytest.fixture(scope="module")
def result():
    return gpe.embed(gpe.datasets.torus(2000, noise=0.05), n_components=4, power=[4, 64], progress=False)


def shades_of(address):
    """Read a PNG back: every chunk has its checksum."""
    raw = base64.b64decode(address.partition(",")[2])
    assert raw.startswith(b"\x89PNG")
    chunks, at = {}, 8
    while at < len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        body = raw[at + 8 : at + 8 + size]
        assert struct.unpack(">I", raw[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind], at = body, at + 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    return np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)[:, 1:]


def test_pictures_show_every_row(result):
    for one in sampled_view(result).powers:
        assert 500 < (shades_of(one.picture) > 0).sum() <= 2000


def test_png_is_read_back():
    shades = np.arange(12, dtype=np.uint8).reshape(3, 4)
    palette = np.zeros((256, 3), np.uint8)
    assert (shades_of(data_address(png(shades, palette))) == shades).all()


def test_png_opens_elsewhere():
    Image = pytest.importorskip("PIL.Image")
    from io import BytesIO

    shades = np.arange(12, dtype=np.uint8).reshape(3, 4)
    palette = np.stack([np.arange(256)] * 3, axis=1).astype(np.uint8)[::-1].copy()
    assert (np.asarray(Image.open(BytesIO(png(shades, palette))).convert("L")) == 255 - shades).all()


def test_a_sample_is_random_and_its_colours_belong_to_it(result, monkeypatch):
    monkeypatch.setattr("scalable_gpe.html_report.view._MAX_BYTES", 50_000)
    row = np.arange(2000.0)
    view = sampled_view(result, color=row)
    assert 100 < view.n_sampled < 2000
    rows = view.color.values.astype(int)
    assert (np.diff(rows) > 0).all() and abs(rows.mean() - 1000) < 200
    for one in view.powers:
        component = one.low[3] + one.steps[:, 3] / 65534 * (one.high[3] - one.low[3])
        inside = one.steps[:, 3] <= 65534
        expected = np.asarray(result.points[one.power])[rows, 0]
        np.testing.assert_allclose(component[inside], expected[inside], atol=np.ptp(expected) / 1e3)


def test_many_powers_are_spread():
    assert spread(range(5)) == [0, 1, 2, 3, 4]
    chosen = spread(range(100))
    assert len(chosen) == MAX_POWERS and chosen[0] == 0 and chosen[-1] == 99


def test_every_label_has_its_own_colour(result):
    column = sampled_view(result, color=np.arange(2000) % 20).color
    assert len(set(column.shades("dark"))) == 20


def test_any_number_of_labels(result):
    column = sampled_view(result, color=np.arange(2000).astype(str)).color
    assert column.labels[-1] == "other (1,900 labels)" and len(column.labels) == len(column.shades("dark")) == 101
