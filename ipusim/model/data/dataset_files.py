"""Read datasets from files: the MNIST file format, NumPy archives, scikit-learn's handwritten digits."""

from __future__ import annotations

import gzip
import math
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import FileError, ModelError, install_command
from ipusim.base.files import Readable, open_file, read_arrays, read_up_to
from ipusim.model.data.datasets import Dataset
from ipusim.model.layers.layer import Array

#: Big-endian data types by type byte of an IDX file's magic number (Y. LeCun's description of the MNIST files,
#: yann.lecun.com/exdb/mnist).
_IDX_TYPES: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

#: Path of scikit-learn's digits; rows contain 64 pixels from 0 to 16, then the digit.
_DIGITS: Final = "datasets/data/digits.csv.gz"
#: First bytes of a gzip file.
_GZIP: Final = b"\x1f\x8b"
#: Largest number of axes of a NumPy array.
_MOST_AXES: Final = 64
#: Largest number of classes; a larger label is a mistake in the file.
_MOST_CLASSES: Final = 2**20


def digits(dtype: npt.DTypeLike = np.float32) -> Dataset:
    """Return scikit-learn's 1797 handwritten digits of 8 x 8 pixels, scaled to [0, 1].

    Raises ModelError if scikit-learn, or its file of digits, is missing.
    """
    package = find_spec("sklearn")  # an optional dependency; importing it for the same numbers would take a second
    if package is None or package.origin is None:
        raise ModelError(f"the digits dataset needs scikit-learn: {install_command('digits')}")
    path = Path(package.origin).parent / _DIGITS
    try:
        rows = np.loadtxt(path, delimiter=",")
    except FileNotFoundError:
        raise ModelError(f"the digits dataset needs a scikit-learn with the file {_DIGITS}, got none: {path}") from None
    images = rows[:, :-1].reshape(-1, 8, 8)
    return Dataset((images / 16).astype(dtype), rows[:, -1].astype(np.int32), 10, "digits")


def idx(images: Path, labels: Path, dtype: npt.DTypeLike = np.float32) -> Dataset:
    """Return the dataset of an images file and a labels file in the MNIST format, plain or gzipped.

    Inputs become ``dtype``, with one-byte pixels scaled to [0, 1]. Classes range from 0 to the largest label. Raises
    ModelError for a missing file, a file of another format, or a length that contradicts the header.
    """
    x = read_idx(images)
    y = read_idx(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ModelError(f"{labels}: expected one whole-number label for each image, got {y.dtype} of shape {y.shape}")
    if x.ndim < 2:
        raise ModelError(f"{images}: expected images of at least one axis each, got data of shape {x.shape}")
    if len(x) != len(y):
        raise ModelError(f"{images} holds {len(x)} images but {labels} {len(y)} labels: each image needs one")
    inputs = _convert(x, dtype)
    if x.dtype == np.uint8:
        inputs /= inputs.dtype.type(255)
    return Dataset(inputs, *_classes(y, labels), images.name)


def _convert(array: Array, dtype: npt.DTypeLike) -> Array:
    """Return the array in a floating-point dtype; overflow becomes infinity, which Dataset refuses."""
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _classes(labels: Array, path: Path) -> tuple[Array, int]:
    """Return whole-number labels as int32, and the number of classes, counted up to the largest label."""
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= _MOST_CLASSES:
        raise ModelError(f"{path}: expected class numbers from 0 to {_MOST_CLASSES - 1}, got {least} to {most}")
    return labels.astype(np.int32), most + 1


def read_idx(path: Path) -> Array:
    """Return the array of an IDX file, gzipped or plain; raises ModelError like :func:`idx`."""
    try:
        with open_file(path) as file:
            zipped = file.read(2) == _GZIP
            file.seek(0)
            return _idx_array(gzip.GzipFile(fileobj=file) if zipped else file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ModelError(f"{path}: the gzip data is damaged: {error}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    except FileError as error:
        raise ModelError(f"{path}: {error}") from None


def _idx_array(file: Readable) -> Array:
    """Read exactly the header's number of bytes; raises FileError for a shorter or longer file."""
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX_TYPES or start[3] == 0:
        raise FileError(
            "not an IDX file: expected a magic number of two zero bytes, a type from 08 to 0e "
            f"and a number of axes, got {start.hex(' ') or 'nothing'}"
        )
    dtype, axes = np.dtype(_IDX_TYPES[start[2]]), start[3]
    header = 4 + 4 * axes
    sizes = file.read(4 * axes)
    if len(sizes) < 4 * axes:
        raise FileError(f"the header of {axes} axes needs {header} bytes, the file has {4 + len(sizes)}")
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    if axes > _MOST_AXES:
        raise FileError(f"expected at most {_MOST_AXES} axes, got {axes}")
    if 0 in shape:
        raise FileError(f"the header says shape {shape}, which holds nothing")
    byte_count = math.prod(shape) * dtype.itemsize
    data = read_up_to(file, byte_count)
    if len(data) < byte_count or file.read(1):
        has = f"{header + len(data)}" if len(data) < byte_count else "more"
        raise FileError(f"the header says shape {shape}, {header + byte_count} bytes in all, the file has {has}")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def npz(path: Path, x: str = "x", y: str = "y", tokens: bool = False, dtype: npt.DTypeLike = np.float32) -> Dataset:
    """Return the dataset of the arrays ``x`` and ``y`` of a NumPy archive.

    Inputs and targets become ``dtype``; with ``tokens``, inputs become int32 for an embedding. Whole-number labels are
    classes, counted up to the largest label. Floating-point labels are regression targets. Raises ModelError for a
    missing file, a file other than an archive, a missing array, an array without numbers, or tokens other than whole
    numbers.
    """
    try:
        with open_file(path) as file:
            arrays = read_arrays(file, (x, y))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    except FileError as error:
        raise ModelError(f"{path}: {error}") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf" or array.ndim == 0 or array.size == 0:
            raise ModelError(f"{path}: expected array {name!r} to hold numbers, got {array.dtype} of {array.shape}")
    inputs, labels = arrays[x], arrays[y]
    if tokens and (inputs.dtype.kind not in "iu" or inputs.min() < 0 or inputs.max() > np.iinfo(np.int32).max):
        raise ModelError(f"{path}: expected tokens in array {x!r}, whole numbers from 0, got {inputs.dtype}")
    inputs = inputs.astype(np.int32) if tokens else _convert(inputs, dtype)
    if labels.dtype.kind == "f":
        return Dataset(inputs, _convert(labels, dtype), None, path.name)
    return Dataset(inputs, *_classes(labels, path), path.name)
