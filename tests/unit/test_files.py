"""Files from anywhere: a value or one message, memory as the file states it, and no waiting."""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ipusim.errors import FileError, ModelError, TimelineError
from ipusim.files import array_names, open_file, read_arrays
from ipusim.model.data.dataset_files import idx, npz, read_idx
from ipusim.model.functions.python_file import load_function
from ipusim.timeline.timeline import Timeline


def header(shape, dtype="<f8"):
    """Return the header of a NumPy array, which may say anything."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(compression=zipfile.ZIP_DEFLATED, **members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def patched(content, offset_in_local, offset_in_directory, change):
    """Return an archive with a field of its only member changed in both places that have it."""
    data = bytearray(content)
    for start, offset in ((b"PK\x03\x04", offset_in_local), (b"PK\x01\x02", offset_in_directory)):
        change(data, data.index(start) + offset)
    return bytes(data)


def flag_encrypted(data, at):
    data[at] |= 1


def set_method_99(data, at):
    data[at : at + 2] = struct.pack("<H", 99)


DATA = header((2,)) + bytes(16)
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


def idx_bytes(shape, content=b""):
    return bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + content


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


def test_a_file_that_is_opened_can_be_read(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    with open_file(tmp_path / "f") as file:
        assert file.read() == b"abc"


def peak_bytes(read):
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BIG = 1 << 28


def bomb(start):
    """Return ``start`` and zeros, in all a quarter of a gigabyte, packed a thousand times smaller."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9) as file:
        file.write(start)
        for _ in range(BIG >> 20):
            file.write(bytes(1 << 20))
    return buffer.getvalue()


def test_memory_follows_what_a_file_states_not_what_it_unpacks_to(tmp_path):
    files = {
        "zeros.gz": bomb(b""),
        "pixels.gz": bomb(idx_bytes((2, 2))),
        "rows.npz": archive(x=header((1000,)) + bytes(BIG), y=DATA),
        "sparse": idx_bytes((2, 2)),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    os.truncate(tmp_path / "sparse", BIG)

    def refused(read, *paths):
        with pytest.raises(ModelError):
            read(*paths)

    for name in files:
        for read in (read_idx, npz):
            assert peak_bytes(lambda read=read, name=name: refused(read, tmp_path / name)) < 8e6, (read, name)


@pytest.mark.parametrize("kind", ["idx", "gzip", "npz"])
def test_memory_of_a_dataset_is_a_few_times_what_its_header_states(tmp_path, kind):
    images = np.random.default_rng(0).integers(0, 256, (4096, 32, 32), np.uint8)
    labels = np.zeros(4096, np.uint8)
    np.savez(tmp_path / "d.npz", x=images, y=labels)
    for name, array in (("x", images), ("y", labels)):
        content = idx_bytes(array.shape, array.tobytes())
        (tmp_path / name).write_bytes(gzip.compress(content, 1) if kind == "gzip" else content)
    read = (lambda: npz(tmp_path / "d.npz")) if kind == "npz" else (lambda: idx(tmp_path / "x", tmp_path / "y"))
    as_floats = 4 * images.nbytes  # float32
    assert peak_bytes(read) < as_floats + 2.5 * images.nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_lie_of_two_gigabytes_fits_into_little_memory(tmp_path):
    """The archive and the array agree on bytes that are not there."""
    size = 2**31 - 1

    def lie(data, at):
        data[at : at + 4] = struct.pack("<I", size + len(header((size,), "|u1")))

    content = archive(x=header((size,), "|u1") + bytes(100))
    (tmp_path / "d.npz").write_bytes(patched(content, 22, 24, lie))
    code = """
        import resource, sys
        from pathlib import Path
        from ipusim.errors import ModelError
        from ipusim.model.data.dataset_files import npz
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
        try:
            npz(Path(sys.argv[1]), "x", "x")
        except ModelError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), tmp_path / "d.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{tmp_path}/d.npz: not a NumPy archive of plain arrays: 'x' "), done.stderr
    assert "MemoryError" not in done.stdout


@pytest.mark.parametrize("reference", ["..", "."])
def test_a_folder_is_no_python_file(reference):
    with pytest.raises(ModelError, match="expected a file, got a folder"):
        load_function(f"{reference}:f", Path())
