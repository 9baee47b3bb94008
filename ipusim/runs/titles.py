"""Take the title of a run in pictures from its description: the first sentence."""

from __future__ import annotations

import re
import textwrap
from typing import Final

#: Maximum length of a title, in characters: two lines of a picture.
_MOST_TITLE_CHARACTERS: Final = 160


def title_of(description: str) -> str:
    """Return the first sentence of a description without its full stop; empty for an empty description.

    A sentence ends if the next word does not begin with a small letter. A sentence longer than two lines is cut at the
    first colon; without a colon, at a word.
    """
    text = "".join(c if c.isprintable() else " " for c in description)
    sentence = re.split(r"(?<=[.!?])\s+(?![a-z(])", text.strip(), maxsplit=1)[0]
    title = " ".join(sentence.removesuffix(".").split())
    if len(title) > _MOST_TITLE_CHARACTERS:
        title = re.split(r"[:;] ", title, maxsplit=1)[0]
    return textwrap.shorten(title, _MOST_TITLE_CHARACTERS, placeholder="…")
