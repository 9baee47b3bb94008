"""Which stage's passes rows of a Timeline belong to, forward or backward, by which blocks move their micro-batches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ipusim.timeline.kinds import PASSES, SpanKind, of_kinds
from ipusim.timeline.span import NONE

Column = npt.NDArray[np.int64]

_SENDS = (SpanKind.SEND, SpanKind.BLOCKING_SEND)


def phases(columns: Mapping[str, Column]) -> Column:
    """Return a number for the stage and the direction of the passes that each row belongs to.

    A send belongs to the pass that has made its tensor, its cause; what a host feeds and takes to forward passes.

    Args:
        columns: of a Timeline, by name.

    Returns:
        Of each row twice the number of its stage, and one more where it is of the backward pass; negative without a
        stage; shape (rows,).
    """
    kind, cause = columns["kind"], columns["cause"]
    backward = of_kinds(kind, [pass_kind for pass_kind in PASSES if pass_kind is not SpanKind.FORWARD])
    sent = of_kinds(kind, _SENDS) & (cause != NONE)
    backward[sent] = backward[cause[sent]]
    return 2 * columns["stage"] + backward
