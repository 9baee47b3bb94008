"""Which micro-batches stages keep for their backward pass, and from which pass to which."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ipusim.timeline.kinds import SpanKind, of_kinds
from ipusim.timeline.repeats import Column
from ipusim.timeline.timeline import NONE, Timeline

#: Passes that use what a forward pass has kept; the other half of a backward pass needs other tensors.
_BACKWARD = (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT)


class Stash(NamedTuple):
    """The micro-batches that stages store, as columns of one length.

    Attributes:
        opens: row of the forward pass with whose start it begins; NONE where that is no row.
        closes: row of the pass with whose end it ends: the backward pass, its first half, or a recomputation; NONE
            where that is no row.
    """

    opens: Column
    closes: Column


def stash_of(timeline: Timeline, rows: Column) -> Stash:
    """Return the stash of each micro-batch in each stage, as far as passes among ``rows`` show it.

    Counts at a time are those of :func:`ipusim.analysis.memory.stashed_micro_batches`. In inference nothing is kept.

    Args:
        timeline: the run.
        rows: of one execution, in order.
    """
    nothing = np.empty(0, dtype=np.int64)
    if not timeline.info.training:
        return Stash(nothing, nothing)
    kind, stages = timeline.kind[rows], len(timeline.info.stages)
    # A stage that runs again keeps no more than its input until then.
    recomputed = np.zeros(stages, dtype=bool)
    recomputed[timeline.stage[rows[kind == SpanKind.RECOMPUTE]]] = True
    takes = np.where(recomputed[timeline.stage[rows]], kind == SpanKind.RECOMPUTE, of_kinds(kind, _BACKWARD))
    opens, closes = rows[kind == SpanKind.FORWARD], rows[takes]

    def key(of: Column) -> Column:
        keys: Column = (timeline.replica[of] * stages + timeline.stage[of]) * timeline.info.count
        return keys + timeline.micro_batch[of]

    keys = np.union1d(key(opens), key(closes))
    columns = []
    for of in (opens, closes):
        column = np.full(len(keys), NONE)
        column[np.searchsorted(keys, key(of))] = of
        columns.append(column)
    return Stash(*columns)
