"""What a run is called in pictures: the first sentence of its description."""

from __future__ import annotations

import re
import textwrap
from typing import Final

#: Characters: two lines of a picture's title.
_LONGEST: Final = 160


def title_of(description: str) -> str:
    """Return the first sentence of a description without its full stop, shortened at a word; empty for none.

    A sentence ends where the next word begins with another letter than a small one.
    """
    text = "".join(c if c.isprintable() else " " for c in description)
    sentence = re.split(r"(?<=[.!?])\s+(?![a-z(])", text.strip(), maxsplit=1)[0]
    return textwrap.shorten(sentence.removesuffix("."), _LONGEST, placeholder="…")
