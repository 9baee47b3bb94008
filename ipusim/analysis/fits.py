"""Define the four answers to the question whether a program fits memory."""

from __future__ import annotations

from enum import StrEnum


class Fits(StrEnum):
    """Answer to the question whether a program fits memory.

    Example:
        >>> from ipusim.api import analysis
        >>> [str(answer) for answer in analysis.Fits]
        ['fits', 'fits only without the estimated code', 'does not fit', 'not known']
    """

    YES = "fits"
    WITHOUT_CODE = "fits only without the estimated code"
    NO = "does not fit"
    UNKNOWN = "not known"


def fits_or_unknown(fits: Fits | None) -> bool:
    """Tell whether a plan may be recommended: the plan fits, or its memory is unknown.

    None represents a refused plan.
    """
    return fits in (Fits.YES, Fits.UNKNOWN)
