"""Networks as tests cut them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ipusim.model.layers.network import Network


def split(network: Network, splits: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the layer names of each stage of ``network``, cut before each layer named in ``splits``."""
    cuts = [network.names.index(name) for name in splits]
    return tuple(network.names[start:end] for start, end in pairwise([0, *cuts, len(network.names)]))
