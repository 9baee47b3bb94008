"""Pack integer columns as text of a page: in the narrowest types, compressed by gzip, in base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from ipusim.app.render.arrays import Integers
from ipusim.base.compression import Gzip

#: JavaScript's typed arrays of integers by name, narrowest first.
_TYPES: Final[dict[str, type[np.signedinteger[Any] | np.unsignedinteger[Any]]]] = {
    "Uint8": np.uint8,
    "Int8": np.int8,
    "Uint16": np.uint16,
    "Int16": np.int16,
    "Uint32": np.uint32,
    "Int32": np.int32,
}
#: Type of larger values; exact up to 2**53.
_LARGE_VALUE_TYPE: Final = "Float64"
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
            content = values.astype(np.dtype(_TYPES.get(kind, np.float64)).newbyteorder("<")).tobytes()
            content += bytes(-len(content) % _ALIGNMENT)
            entries.append(
                {"name": name, "type": kind, "at": offset, "length": len(column), "differences": name in differences}
            )
            file.write(content)
            offset += len(content)
        return entries, b64encode(file.close()).decode()


def _type_of(values: Integers) -> str:
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    for name, kind in _TYPES.items():
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return name
    return _LARGE_VALUE_TYPE
