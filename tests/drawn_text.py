"""Texts of any characters for Hypothesis.

They are those that UTF-8 has; asked for that codec, Hypothesis encodes each of a million, for seconds.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def any_text(**sizes: Any) -> st.SearchStrategy[str]:
    """Return what draws texts of any characters but halves of a surrogate pair, as ``st.text`` does."""
    return st.text(st.characters(exclude_categories=("Cs",)), **sizes)
