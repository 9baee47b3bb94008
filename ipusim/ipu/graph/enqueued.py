"""Find enqueues to an outfeed inside a pass or a weight update."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ipusim.api import models
from ipusim.ipu.graph.prices.observed import ObservedNode
from ipusim.ipu.graph.registry import value_of


@dataclass(frozen=True, eq=False)
class EnqueueItem:
    """Marker value of a node that enqueues to an outfeed.

    Attributes:
        queue: the outfeed.
    """

    queue: Any


def copies_to_host(observed_nodes: Iterable[ObservedNode]) -> tuple[models.HostCall, ...]:
    """Return a pass's copies to the host: one call holding the bytes of all enqueues.

    Args:
        observed_nodes: nodes of the pass.
    """
    sizes = [
        form.nbytes
        for entry in observed_nodes
        if value_of(entry.node, EnqueueItem) is not None
        for form in entry.inputs
    ]
    return (models.HostCall("outfeed", sent_bytes=sum(sizes)),) if sizes else ()
