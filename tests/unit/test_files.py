"""Files from anywhere: a value or one message, memory as the file states it, no waiting, and compression."""

import gzip
import io
import os
import re
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ipusim.app.notebook import folder
from ipusim.base.compression import Gzip
from ipusim.base.errors import FileError, ModelError, TimelineError
from ipusim.base.files import array_names, has_run_file, read_arrays, read_run_file
from ipusim.model.data.dataset_files import npz, read_idx
from ipusim.model.functions.python_file import load_function
from ipusim.runs.assemble.limits import MAX_PARAMETER_ELEMENTS, MAX_RUN_BYTES, SPAN_BYTES
from ipusim.timeline.timeline import MOST_SPANS, Timeline
from tests.forged_files import DATA, archive, header, idx_bytes, patched


def flag_encrypted(data, at):
    data[at] |= 1


def set_method_99(data, at):
    data[at : at + 2] = struct.pack("<H", 99)


PICKLES = "(?i)pickle|trust|max_header_size"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a NumPy archive"),
        (b"\x93NUMPY\x01\x00", "expected an npz archive, got a single array"),
        (archive(y=DATA), "no array 'x'; it holds y"),
        (archive(**{f"a{i}": b"" for i in range(99)}), r"it holds a0, a1, a2, a3, a4, a5, a6, a7, \.\.\."),
        (archive(x=header((10**12,)) + bytes(8)), r"'x' says float64 of \(1000000000000,\), 8000000000000 bytes"),
        (archive(x=header((10**30,)) + bytes(8)), "'x' says float64 of"),
        (archive(x=header((-1, -2)) + bytes(16)), r"'x' says float64 of \(-1, -2\)"),
        (archive(x=header((1,) * 65) + bytes(8)), "'x' cannot be read"),
        (archive(x=header((0, 2**62, 2**62))), "'x' cannot be read"),
        (archive(x=header((2,)) + bytes(15)), "16 bytes, and has 15"),
        (archive(x=header((2,)) + bytes(17)), "16 bytes, and has 17"),
        (archive(x=header((1,), "|O") + b"\x80\x04N."), "'x' holds Python objects, expected numbers"),
        (archive(x=header((1,), "|V0")), "'x' "),
        (archive(x=b"\x80\x04N."), "'x' has no header of a plain array"),
        (archive(x=header((2,), "(" * 5000)), "'x' has no header"),
        (archive(x=header("(" * 5000)), "'x' has no header"),
        (archive(x=header((1,), "x" * 20000)), "'x' has no header"),
        (archive(x=header("'\\d'")), "'x' has no header"),
        (archive(x=header("(2L,)") + bytes(16)), None),
        (archive(zipfile.ZIP_LZMA, x=DATA), "'x' is compressed by method 14, which NumPy does not write"),
        (archive(zipfile.ZIP_BZIP2, x=DATA), "'x' is compressed by method 12"),
        (patched(archive(x=DATA), 8, 10, set_method_99), "'x' is compressed by method 99"),
        (patched(archive(x=DATA), 6, 8, flag_encrypted), "'x' cannot be read: .*encrypted"),
        (archive(zipfile.ZIP_STORED, x=DATA).replace(bytes(16), bytes(15) + b"!"), "'x' cannot be read: Bad CRC"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
def test_an_archive_is_read_or_refused_with_a_reason(content, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if message is None:
            np.testing.assert_array_equal(read_arrays(io.BytesIO(content), ["x"])["x"], [0, 0])
            return
        with pytest.raises(FileError, match=message) as caught:
            read_arrays(io.BytesIO(content), ["x"])
    assert not re.search(PICKLES, str(caught.value))


def test_arrays_come_as_they_were_saved():
    arrays = {
        "c": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
        "scalar": np.array(True),
        "empty": np.zeros((0, 3), np.float32),
        "text": np.array(["ä", "b"]),
        "dense256/W": np.ones(3, np.float16),
    }
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, **arrays)
        buffer.seek(0)
        assert array_names(buffer) == list(arrays)
        buffer.seek(0)
        read = read_arrays(buffer, list(arrays))
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx_bytes((1,) * 65, b"!"), "expected at most 64 axes, got 65"),
        (idx_bytes((0, *[2**32 - 1] * 4)), r"the header says shape \(0, 4294967295, .*which holds nothing"),
        (idx_bytes((2**32 - 1,) * 3, b"!"), "bytes in all, the file has 17"),
        (gzip.compress(idx_bytes((2**32 - 1,) * 3, b"!")), "bytes in all, the file has 17"),
        (gzip.compress(idx_bytes((2,), b"!!")) + b"more", "the gzip data is damaged"),
        (gzip.compress(idx_bytes((2,), b"!!"))[:-5] + b"12345", "the gzip data is damaged: CRC"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
def test_idx_of_impossible_shapes(tmp_path, content, message):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_idx(tmp_path / "f")


READERS = {
    "npz": (npz, ModelError),
    "idx": (read_idx, ModelError),
    "timeline": (Timeline.load, (TimelineError, OSError)),
    "python": (lambda path: load_function(f"{path.name}:f", path.parent), ModelError),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("kind", "text"), [("fifo", "a named pipe"), ("zero", "a device"), ("folder", "a folder")])
@pytest.mark.skipif(os.name != "posix", reason="pipes and devices have names on POSIX")
def test_what_may_never_end_is_not_opened(tmp_path, reader, kind, text):
    path = tmp_path / "f.py"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    read, error = READERS[reader]
    with pytest.raises(error, match=f"expected a file, got {text}"):
        read(path)


#: What is no file of a run, as a message calls it, and how it comes into its place.
OTHERS = {
    "link": ("a link", lambda path: path.symlink_to(path.parent)),
    "link to nothing": ("a link", lambda path: path.symlink_to(path.parent / "nothing")),
    "endless link": ("a link", lambda path: path.symlink_to("/dev/zero")),
    "link to a file": ("a link", lambda path: (path.with_name("o").write_text("{}"), path.symlink_to("o"))),
    "pipe": ("a named pipe", os.mkfifo),
    "folder": ("a folder", Path.mkdir),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_run_folder_has_files_alone(tmp_path, kind):
    path = tmp_path / "summary.json"
    assert not has_run_file(path)
    called, put = OTHERS[kind]
    put(path)
    for read in (has_run_file, lambda path: read_run_file(path, 10)):
        with pytest.raises(OSError, match=f"expected a file, got {called}") as caught:
            read(path)
        assert caught.value.filename == str(path)


def test_a_run_file_is_read_up_to_what_a_run_may_write(tmp_path):
    path = tmp_path / "losses.csv"
    path.write_bytes(b"0123456789")
    assert has_run_file(path)
    assert read_run_file(path, 10) == b"0123456789"
    with pytest.raises(FileError, match=re.escape(f"{path}: expected a file of at most 9 B, got one of 10 B")):
        read_run_file(path, 9)
    os.truncate(path, 2**40)  # which takes no disk, and would fill memory
    with pytest.raises(FileError, match="got one of 1 TiB"):
        read_run_file(path, 2**20)


def test_arrays_that_unpack_to_more_than_a_run_has_are_refused_before_they_do(tmp_path):
    content = archive(x=DATA, y=DATA)
    taken = 2 * len(DATA)
    assert set(read_arrays(io.BytesIO(content), None, max(taken, len(content)))) == {"x", "y"}
    assert set(read_arrays(io.BytesIO(content), ["x"], len(content))) == {"x"}
    bomb = archive(x=header((10**6,)) + bytes(8 * 10**6))
    assert len(bomb) < 10**5
    with pytest.raises(FileError, match=r"expected arrays of at most 976\.6 KiB, got 7\.629 MiB"):
        read_arrays(io.BytesIO(bomb), None, 10**6)
    with pytest.raises(FileError, match="expected arrays of at most"):
        read_arrays(io.BytesIO(content), None, len(content) - 1)


def test_what_a_run_may_write_is_never_too_large_to_read():
    assert MAX_RUN_BYTES <= MOST_SPANS * SPAN_BYTES
    # Weights in float64; of outputs a run holds three copies.
    assert max(8 * MAX_PARAMETER_ELEMENTS, MAX_RUN_BYTES / 3) <= folder._MOST_ARRAY_BYTES


@pytest.mark.parametrize("reference", ["..", "."])
def test_a_folder_is_no_python_file(reference):
    with pytest.raises(ModelError, match="expected a file, got a folder"):
        load_function(f"{reference}:f", Path())


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
