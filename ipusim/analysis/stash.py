"""Find when stages keep micro-batches for their backward pass: opening and closing pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ipusim.timeline.kinds import SpanKind, of_kinds
from ipusim.timeline.repeats import Column
from ipusim.timeline.timeline import NONE, Timeline

#: Passes that use tensors kept by the forward pass. A weight-gradient pass is none, because it uses tensors of the
#: input-gradient pass.
_BACKWARD = (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT)


class Stash(NamedTuple):
    """Micro-batches stored by stages, as columns of equal length.

    Attributes:
        opens: row of the forward pass that begins storage when it starts; NONE without a row.
        closes: row of the pass that ends storage when it ends: backward pass, input-gradient pass, or recomputation;
            NONE without a row.
    """

    opens: Column
    closes: Column


def stash_of(timeline: Timeline, rows: Column) -> Stash:
    """Find when stages store micro-batches, from passes among ``rows``.

    Counts over time agree with :func:`ipusim.analysis.memory.stashed_micro_batches`. Inference stores no micro-batches.

    Args:
        timeline: the run.
        rows: rows of one execution, in order.
    """
    empty = np.empty(0, dtype=np.int64)
    if not timeline.info.training:
        return Stash(empty, empty)
    kind, stages = timeline.kind[rows], len(timeline.info.stages)
    # A recomputed stage keeps only its input until recomputation.
    recomputed = np.zeros(stages, dtype=bool)
    recomputed[timeline.stage[rows[kind == SpanKind.RECOMPUTE]]] = True
    is_closing = np.where(recomputed[timeline.stage[rows]], kind == SpanKind.RECOMPUTE, of_kinds(kind, _BACKWARD))
    opens, closes = rows[kind == SpanKind.FORWARD], rows[is_closing]

    def key(pass_rows: Column) -> Column:
        keys: Column = (timeline.replica[pass_rows] * stages + timeline.stage[pass_rows]) * timeline.info.count
        return keys + timeline.micro_batch[pass_rows]

    keys = np.union1d(key(opens), key(closes))
    columns = []
    for pass_rows in (opens, closes):
        column = np.full(len(keys), NONE)
        column[np.searchsorted(keys, key(pass_rows))] = pass_rows
        columns.append(column)
    return Stash(*columns)
