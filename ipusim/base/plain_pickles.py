"""Read pickles of plain containers and NumPy arrays without running any named code."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ipusim.base.errors import FileError


def unpickled(content: bytes) -> Any:
    """Return the contents of a pickle: numbers, texts, lists, tuples, dictionaries and NumPy arrays.

    Raises:
        FileError: for a pickle that names anything else, and for damaged bytes; the text is the reason.
    """
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except FileError:
        raise
    except Exception as error:  # damaged bytes fail in many ways
        raise FileError(f"not a pickle: {str(error) or type(error).__name__}") from error


def _empty(*_: object) -> np.ndarray[Any, Any]:
    """Return an array without elements, whose state follows in the pickle."""
    return np.empty(0, np.int8)


def _bytes(text: str, _: str = "") -> bytes:
    """Return bytes from the text as which Python 3 pickles them for Python 2."""
    return text.encode("latin1")


#: Names in pickles of NumPy arrays, with the function called for every name.
_BUILDERS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): _empty,  # never called, only passed on to _reconstruct
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("_codecs", "encode"): _bytes,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the function that builds an array; raises FileError for any other name."""
        if (module, name) not in _BUILDERS:
            raise FileError(f"expected plain containers and NumPy arrays, got a pickle of {module}.{name}")
        return _BUILDERS[module, name]
