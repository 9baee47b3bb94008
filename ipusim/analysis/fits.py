"""The four answers to whether a program fits the memory of its machine."""

from __future__ import annotations

from enum import StrEnum


class Fits(StrEnum):
    """An answer to whether a program fits, by its words.

    Example:
        >>> from ipusim.api import analysis
        >>> [str(answer) for answer in analysis.Fits]
        ['fits', 'fits only without the estimated code', 'does not fit', 'not known']
    """

    YES = "fits"
    WITHOUT_CODE = "fits only without the estimated code"
    NO = "does not fit"
    UNKNOWN = "not known"


def usable(fits: Fits | None) -> bool:
    """Tell whether a plan may be advised, or called the best: it fits, or its memory is not known.

    None stands for a refused plan.
    """
    return fits in (Fits.YES, Fits.UNKNOWN)
