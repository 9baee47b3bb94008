"""The title of a run in pictures: the first sentence of its description."""

from __future__ import annotations

import re
import textwrap
from typing import Final

#: Characters: two lines of a picture's title.
_LONGEST: Final = 160


def title_of(description: str) -> str:
    """Return the first sentence of a description without its full stop; empty for none.

    A sentence ends where the next word begins with another letter than a small one. Of one that is longer than two
    lines of a title, the part before a colon is a title by itself; without any it is shortened at a word.
    """
    text = "".join(c if c.isprintable() else " " for c in description)
    sentence = re.split(r"(?<=[.!?])\s+(?![a-z(])", text.strip(), maxsplit=1)[0]
    title = " ".join(sentence.removesuffix(".").split())
    if len(title) > _LONGEST:
        title = re.split(r"[:;] ", title, maxsplit=1)[0]
    return textwrap.shorten(title, _LONGEST, placeholder="…")
