"""Pack integer columns as text of a page: in the narrowest types, compressed by gzip, in base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from ipusim.app.render.arrays import Integers
from ipusim.base.compression import Gzip

#: Bytes of JavaScript's widest array of integers; larger values become Float64, exact up to 2**53.
_WIDEST_BYTES: Final = 4
#: Alignment of arrays in bytes, as the widest type needs.
_ALIGNMENT: Final = 8


def pack(columns: Mapping[str, Integers], differences: Collection[str] = ()) -> tuple[list[dict[str, Any]], str]:
    """Pack columns, and return their descriptions and their content.

    A description is name, type, offset in bytes, length and delta coding. The content is gzip-compressed, in base64.
    ``differences`` names columns stored as deltas, which compress better when numbers rise.
    """
    offset, entries = 0, []
    with Gzip() as file:
        for name, column in columns.items():
            values = np.diff(column, prepend=0) if name in differences else column
            kind = _type_of(values)
            content = values.astype(kind.newbyteorder("<")).tobytes()
            content += bytes(-len(content) % _ALIGNMENT)
            entries.append(
                {"name": name, "type": kind.name.capitalize(), "at": offset, "length": len(column)}
                | {"differences": name in differences}
            )
            file.write(content)
            offset += len(content)
        return entries, b64encode(file.close()).decode()


def _type_of(values: Integers) -> np.dtype[Any]:
    """Return the narrowest type of a JavaScript array for whole numbers."""
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    # A signed type that holds -1 - most holds most, too.
    kind = np.result_type(*map(np.min_scalar_type, (least, -1 - most) if least < 0 else (most,)))
    return kind if kind.itemsize <= _WIDEST_BYTES else np.dtype(np.float64)
