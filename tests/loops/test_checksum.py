"""Checksums in compiled code are those of the library that zarr uses."""

from pathlib import Path

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


@pytest.mark.parametrize("run", [100, 2**13, 2**18, 2**18 + 8, 10**6 + 3])
@pytest.mark.parametrize("offset", [None, 24])
def test_runs_are_read_with_their_checksums(tmp_path, run, offset):
    content = np.random.default_rng(run).integers(0, 256, 2_500_009).astype(np.uint8)
    sums = [google_crc32c.value(content[at : at + run].tobytes()) for at in range(0, len(content), run)]
    with open(tmp_path / "runs", "wb") as file:
        file.write(bytes(offset or 0))
        for number, one in enumerate(sums):
            file.write(content[number * run : (number + 1) * run].tobytes() + one.to_bytes(4, "little"))
    found, stored = np.zeros_like(content), np.empty(len(sums), np.uint32)
    computed = checksum.read_runs(str(tmp_path / "runs"), offset, found, run, stored)
    assert np.array_equal(found, content)
    assert computed.tolist() == stored.tolist() == sums


def test_files_of_another_length_are_not_read(tmp_path):
    path, content, stored = tmp_path / "runs", np.zeros(1000, np.uint8), np.zeros(1, np.uint32)
    assert checksum.read_runs(str(path), None, content, 1000, stored) is None
    for n_bytes, read_from in [(1003, 0), (1003, None), (1005, None)]:
        path.write_bytes(bytes(n_bytes))
        assert checksum.read_runs(str(path), read_from, content, 1000, stored) is None
    assert checksum.read_runs(str(path), 0, content, 1000, stored) is not None
    n_open = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else None
    checksum.read_runs(str(path), 0, content, 1000, stored)
    assert n_open is None or len(list(Path("/proc/self/fd").iterdir())) == n_open
