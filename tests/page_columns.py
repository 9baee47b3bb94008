"""The packed columns of a page, read as its script does."""

from __future__ import annotations

import gzip
from base64 import b64decode

import numpy as np


def unpacked(columns, text):
    """Read columns as the page's script does."""
    content = gzip.decompress(b64decode(text))
    found = {}
    for column in columns:
        kind = np.dtype(column["type"].lower()).newbyteorder("<")
        assert column["at"] % 8 == 0
        values = np.frombuffer(content, kind, column["length"], column["at"])
        found[column["name"]] = (np.cumsum(values) if column["differences"] else values).tolist()
    return found
