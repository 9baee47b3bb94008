"""Datasets that others made: the MNIST file format, NumPy archives, scikit-learn's handwritten digits."""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

from ipusim.errors import ModelError
from ipusim.model.datasets import Dataset
from ipusim.model.layer import Array

#: Type byte of an IDX file's magic number, and the big-endian type of its data
#: (Y. LeCun's description of the MNIST files, yann.lecun.com/exdb/mnist).
_IDX_TYPES: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

#: Most classes that labels may name; a larger number is a mistake in the file.
_MOST_CLASSES: Final = 2**20


def digits(dtype: npt.DTypeLike = np.float32) -> Dataset:
    """Return the 1797 handwritten digits of 8 x 8 pixels that scikit-learn ships, scaled to [0, 1].

    Raises ModelError when scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise ModelError("the digits dataset needs scikit-learn: pip install ipusim[digits]") from None
    bunch = load_digits()
    return Dataset((bunch.images / 16).astype(dtype), bunch.target.astype(np.int32), 10, "digits")


def idx(images: Path, labels: Path, dtype: npt.DTypeLike = np.float32) -> Dataset:
    """Return the dataset of an images file and a labels file in the MNIST format, plain or gzipped.

    Inputs become ``dtype``; pixels of one byte are scaled to [0, 1]. The
    classes are 0 to the largest label. Raises ModelError for a file that is
    missing, is not of this format, or is shorter or longer than its header says.
    """
    x = read_idx(images)
    y = read_idx(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ModelError(f"{labels}: expected one whole-number label for each image, got {y.dtype} of shape {y.shape}")
    if x.ndim < 2:
        raise ModelError(f"{images}: expected images of at least one axis each, got data of shape {x.shape}")
    if len(x) != len(y):
        raise ModelError(f"{images} holds {len(x)} images but {labels} {len(y)} labels: each image needs one")
    if len(x) == 0:
        raise ModelError(f"{images}: no images")
    scale = 255 if x.dtype == np.uint8 else 1
    return Dataset(_converted(x, dtype) / np.dtype(dtype).type(scale), *_classes(y, labels), images.name)


def _converted(array: Array, dtype: npt.DTypeLike) -> Array:
    """Return the array in a floating-point dtype; what is too large becomes infinite, which Dataset refuses."""
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _classes(labels: Array, path: Path) -> tuple[Array, int]:
    """Return whole-number labels as int32, and the number of classes, 0 to the largest label."""
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= _MOST_CLASSES:
        raise ModelError(f"{path}: expected class numbers from 0 to {_MOST_CLASSES - 1}, got {least} to {most}")
    return labels.astype(np.int32), most + 1


def read_idx(path: Path) -> Array:
    """Return the array of one IDX file, gzipped or not; raises ModelError as :func:`idx` does."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise ModelError(f"{path}: the gzip data is damaged: {error}") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES or data[3] == 0:
        raise ModelError(
            f"{path}: not an IDX file: expected a magic number of two zero bytes, a type from 08 to 0e "
            f"and a number of axes, got {data[:4].hex(' ') or 'nothing'}"
        )
    dtype, axes = np.dtype(_IDX_TYPES[data[2]]), data[3]
    header = 4 + 4 * axes
    if len(data) < header:
        raise ModelError(f"{path}: the header of {axes} axes needs {header} bytes, the file has {len(data)}")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", axes, 4))
    wanted = header + math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise ModelError(f"{path}: the header says shape {shape}, {wanted} bytes in all, the file has {len(data)}")
    return np.frombuffer(data, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))


def npz(path: Path, x: str = "x", y: str = "y", tokens: bool = False, dtype: npt.DTypeLike = np.float32) -> Dataset:
    """Return the dataset of two arrays, named ``x`` and ``y``, of a NumPy archive.

    Inputs and targets become ``dtype``, or inputs with ``tokens`` int32, for an embedding. Whole-number
    labels are classes 0 to the largest label, floating-point ones the targets of a
    regression. Raises ModelError for a file that is missing or no archive, or an
    array that is missing, holds no numbers, or should hold tokens and does not.
    """
    try:
        with path.open("rb") as file:  # np.load leaves a file open that it fails on
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, NpzFile):
                raise ModelError(f"{path}: expected an npz archive, got a single array")
            known = archive.files
            arrays = {name: archive[name] for name in (x, y) if name in known}
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"{path}: not a NumPy archive of plain arrays: {error}") from None
    for name in (x, y):
        if name not in arrays:
            raise ModelError(f"{path}: no array {name!r}; it holds {', '.join(known) or 'none'}")
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf" or array.ndim == 0 or array.size == 0:
            raise ModelError(f"{path}: expected array {name!r} to hold numbers, got {array.dtype} of {array.shape}")
    inputs, labels = arrays[x], arrays[y]
    if tokens and (inputs.dtype.kind not in "iu" or inputs.min() < 0 or inputs.max() > np.iinfo(np.int32).max):
        raise ModelError(f"{path}: expected array {x!r} to hold tokens, whole numbers from 0, got {inputs.dtype}")
    inputs = inputs.astype(np.int32) if tokens else _converted(inputs, dtype)
    if labels.dtype.kind == "f":
        return Dataset(inputs, _converted(labels, dtype), None, path.name)
    return Dataset(inputs, *_classes(labels, path), path.name)
