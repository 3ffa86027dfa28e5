"""Checksums in compiled code are those of the library that zarr uses."""

import google_crc32c
import numpy as np
import pytest

from scalable_gpe.loops import checksum


@pytest.mark.parametrize("length", [0, 1, 7, 2**14 - 1, 2**14, 2**14 + 1, 2**14 + 23, 100_003])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_same_checksum_as_google_crc32c(length, offset):
    content = np.random.default_rng(length).integers(0, 256, length + offset).astype(np.uint8)[offset:]
    assert checksum.crc32c(content) == google_crc32c.value(content.tobytes())


def test_every_flipped_bit_is_seen():
    content = np.random.default_rng(0).integers(0, 256, 3 * 2**14 + 5).astype(np.uint8)
    sound = checksum.crc32c(content)
    for place in [0, 2**14 - 1, 2**14, 2 * 2**14 + 3, len(content) - 1]:
        for bit in range(8):
            content[place] ^= 1 << bit
            assert checksum.crc32c(content) != sound
            content[place] ^= 1 << bit


def test_other_processors_use_the_library(monkeypatch):
    monkeypatch.setattr(checksum, "_instruction", lambda: None)
    content = np.arange(2**15, dtype=np.uint8)
    assert checksum.crc32c(content) == google_crc32c.value(content.tobytes())
