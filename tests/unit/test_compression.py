"""The compressed trace file: the bytes that came, whole, whatever came and whoever fails."""

import gzip

import numpy as np
import pytest

from ipusim.base.compression import Gzip


def test_what_was_written_in_parts_is_read_whole_and_gives_the_same_bytes_again():
    parts = [np.random.default_rng(size).bytes(size) for size in (0, 1, 100_000, 3, 1_000_000)]
    made = []
    for _ in range(2):
        with Gzip() as file:
            for part in parts:
                file.write(part)
            made.append(file.close())
    assert gzip.decompress(made[0]) == b"".join(parts)
    assert made[0] == made[1]
    assert made[0][4:8] == bytes(4)  # no time, which would differ


def test_nothing_written_is_an_empty_file():
    with Gzip() as file:
        assert gzip.decompress(file.close()) == b""


@pytest.mark.parametrize("later", [False, True])
def test_what_fails_in_the_other_thread_is_seen_in_this_one(monkeypatch, later):
    def full(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(gzip.GzipFile, "write", full)
    with Gzip() as file:
        file.write(b"first")
        with pytest.raises(MemoryError, match="no room"):
            file.write(b"second") if later else file.close()
