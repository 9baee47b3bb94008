"""Read untrusted files within bounds on time and memory, and write files whole or not at all."""

from __future__ import annotations

import errno
import io
import math
import os
import stat
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import FileError, OutputError
from ipusim.base.units import format_bytes

#: Largest scenario file, in bytes: far beyond any written by hand, and read in a few seconds.
MAX_SCENARIO_BYTES: Final = 1 << 17
#: Bytes per read: memory follows the real content, not the stated size.
_CHUNK_BYTES: Final = 1 << 19
#: Array names listed in a message.
_MOST_LISTED_ARRAYS: Final = 8
_NUMPY: Final = b"\x93NUMPY"
#: Reader of an array's header, by version of NumPy's format.
_HEADERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
#: Tests of a file's mode, with the kind in words.
_KINDS: Final = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISLNK, "a link, which is not followed in a folder of results"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Readable(Protocol):
    """A source of bytes: a file, or the content of a compressed file."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most ``size`` bytes, or the rest; empty at the end."""
        ...


def open_file(path: Path) -> BinaryIO:
    """Open a regular file to read bytes. Raises OSError, also for pipes and devices, which may never end."""
    return _open_regular(path, 0)


def resolve(path: Path) -> Path:
    """Return the absolute path without symbolic links, on every version of Python alike.

    Raises:
        OSError: for circular links, for which `Path.resolve` raises RuntimeError before Python 3.13.
        ValueError: for a name with a null character.
    """
    _check_name(path)
    target = Path(os.path.realpath(path))
    try:
        target.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "its symbolic links lead in a circle", str(path)) from None
    return target


def _check_name(path: Path) -> None:
    """Refuse a null character with the same text on every version of Python."""
    if "\0" in str(path):
        raise ValueError("embedded null byte")


def open_run_file(path: Path, folder: int | None = None) -> BinaryIO:
    """Open a file of an untrusted run folder to read bytes.

    Args:
        path: path of the file, relative to ``folder`` if given.
        folder: descriptor of an open folder.

    Raises OSError like :func:`open_file`, and for a link: the target could be any file that the user may read.
    """
    return _open_regular(path, os.O_NOFOLLOW, folder)


def read_run_file(path: Path, most_bytes: int, folder: int | None = None) -> bytes:
    """Return the bytes of a file in a run folder.

    Args:
        path: path of the file, relative to ``folder`` if given.
        most_bytes: largest size that a run writes into such a file.
        folder: descriptor of an open folder.

    Raises OSError like :func:`open_run_file`, and FileError for a larger file.
    """
    with open_run_file(path, folder) as file:
        return read_whole(file, most_bytes)


def read_whole(file: BinaryIO, most_bytes: int) -> bytes:
    """Return the bytes of an open file; raises FileError, with the file's name, for more than ``most_bytes``."""
    size = os.fstat(file.fileno()).st_size
    content = b"" if size > most_bytes else read_up_to(file, most_bytes + 1)
    if (size := max(size, len(content))) > most_bytes:
        raise FileError(
            f"{file.name}: expected a file of at most {format_bytes(most_bytes)}, got one of {format_bytes(size)}"
        )
    return bytes(content)


def has_run_file(path: Path) -> bool:
    """Return whether a run folder has a file. Raises OSError for a link, a folder or a device."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise _not_a_file(path, mode)
    return True


def _open_regular(path: Path, flags: int, folder: int | None = None) -> BinaryIO:
    _check_name(path)
    # O_NONBLOCK, as opening a named pipe without a writer would block.
    flags |= os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError:
        if flags & os.O_NOFOLLOW and stat.S_ISLNK(mode := os.lstat(path, dir_fd=folder).st_mode):
            raise _not_a_file(path, mode) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _not_a_file(path, mode)
    return open(path, "rb", opener=lambda *_: descriptor)


def _not_a_file(path: Path, mode: int) -> OSError:
    return OSError(errno.EINVAL, f"expected a file, got {kind_of(mode)}", str(path))


def kind_of(mode: int) -> str:
    """Return the kind of a file with a given mode, in words."""
    return next((name for holds, name in _KINDS if holds(mode)), "something else")


def read_up_to(file: Readable, size: int) -> bytearray:
    """Return the next ``size`` bytes, or the rest; memory grows with the bytes read."""
    data = bytearray()
    while len(data) < size and (chunk := file.read(min(_CHUNK_BYTES, size - len(data)))):
        data += chunk
    return data


def read_arrays(
    file: BinaryIO,
    names: Sequence[str] | None = None,
    most_bytes: int | None = None,
    unpickle: Callable[[bytes], Any] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return the named arrays, or every array, of an untrusted NumPy archive (npz).

    No array takes more memory than its part of the archive; arrays of more than ``most_bytes`` together are not
    unpacked. ``unpickle`` reads arrays of Python objects; without ``unpickle`` they are refused.

    Raises FileError for refused arrays, a file of another kind, and a missing or damaged array. The error's text is the
    reason.
    """
    with _open_archive(file, most_bytes) as (archive, members):
        names = list(members) if names is None else names
        for name in names:
            if name not in members:
                names_text = ", ".join(list(members)[:_MOST_LISTED_ARRAYS]) + (
                    ", ..." if len(members) > _MOST_LISTED_ARRAYS else ""
                )
                raise FileError(f"no array {name!r}; it holds {names_text or 'none'}")
        _check_unpacked([members[name].file_size for name in names], most_bytes)
        return {name: _read_array(archive, members[name], name, unpickle) for name in names}


def array_names(file: BinaryIO) -> list[str]:
    """Return the array names of a NumPy archive (npz). Raises FileError for a file of another kind."""
    with _open_archive(file) as (_, members):
        return list(members)


@contextmanager
def _open_archive(file: BinaryIO, most_bytes: int | None = None) -> Iterator[tuple[ZipFile, dict[str, ZipInfo]]]:
    """Yield a NumPy archive of at most ``most_bytes``, and its members by array name."""
    _check_unpacked([file.seek(0, io.SEEK_END)], most_bytes)
    file.seek(0)
    if file.read(len(_NUMPY)) == _NUMPY:
        raise FileError("expected an npz archive, got a single array")
    try:
        archive = ZipFile(file)
    except Exception as error:  # damaged bytes fail in many ways
        raise FileError(f"not a NumPy archive: {_reason(error)}") from error
    with archive:
        yield archive, {info.filename.removesuffix(".npy"): info for info in archive.infolist()}


def _check_unpacked(sizes: Sequence[int], most_bytes: int | None) -> None:
    if most_bytes is not None and sum(sizes) > most_bytes:
        raise FileError(f"expected arrays of at most {format_bytes(most_bytes)}, got {format_bytes(sum(sizes))}")


def archive_of(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return arrays as a NumPy archive (npz); names may contain slashes, such as ``dense256/W``."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:  # the format of numpy.savez, which reserves some names for arguments
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def write_file(path: Path, content: bytes, *, follow: bool = True) -> None:
    """Write a file whole or not at all; raises OutputError naming an unwritable path.

    Args:
        path: path of the file.
        content: content of the file.
        follow: whether to write through a link, as for paths named by a person; otherwise the file replaces the link.
    """
    with naming(path):
        check_target(path)
        target = resolve(path) if follow else path.absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".ipusim-", dir=target.parent) as folder:
            new_file = Path(folder) / target.name
            new_file.write_bytes(content)
            new_file.replace(target)


def check_target(path: Path) -> None:
    """Refuse a folder in place of a file; raises OutputError."""
    if path.is_dir():
        raise OutputError(f"{path}: expected a place for a file, got a folder; name another folder for the results")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn the system's errors into a single message with the requested path."""
    try:
        yield
    except OSError as error:
        file = f"{error.filename}: " if error.filename not in (None, str(path)) else ""
        raise OutputError(f"{path}: cannot be written: {file}{error.strerror or error}; name another place") from error


def _read_array(
    archive: ZipFile, info: ZipInfo, name: str, unpickle: Callable[[bytes], Any] | None
) -> npt.NDArray[Any]:
    subject = f"not a NumPy archive of plain arrays: {name!r}"
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise FileError(f"{subject} is compressed by method {info.compress_type}, which NumPy does not write")
    try:
        with archive.open(info) as member:
            shape, fortran, dtype = _read_header(member, subject)
            if dtype.hasobject:
                if unpickle is None:
                    raise FileError(f"{subject} holds Python objects, expected numbers")
                return _checked_objects(unpickle(bytes(read_up_to(member, info.file_size))), shape, subject)
            need_bytes, file_bytes = math.prod(shape) * dtype.itemsize, info.file_size - member.tell()
            if need_bytes != file_bytes or min(shape, default=0) < 0:
                raise FileError(f"{subject} says {dtype} of {shape}, {need_bytes} bytes, and has {file_bytes}")
            data = read_up_to(member, need_bytes)
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    except FileError:
        raise
    except Exception as error:  # damaged bytes fail in many ways
        raise FileError(f"{subject} cannot be read: {_reason(error)}") from error


def _read_header(member: Readable, subject: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(member)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about old or invalid headers
            shape, fortran, dtype = _HEADERS[version](member)
    except (BadZipFile, zlib.error):
        raise
    except Exception as error:  # NumPy's text recommends unpickling
        raise FileError(f"{subject} has no header of a plain array") from error
    return shape, fortran, dtype


def _checked_objects(array: Any, shape: tuple[int, ...], subject: str) -> npt.NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise FileError(f"{subject} says objects of {shape}, and holds something else")
    return array


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
