"""Return the index of the running replica: Graphcore's ``replication_ops``."""

from __future__ import annotations

from typing import Any

from ipusim.ipu.traced.collectives import add_replica_index


def replication_index(name: str | None = None) -> Any:
    """Return the index of the replica that runs the stage, an int32.

    Args:
        name: name of the operation.
    """
    return add_replica_index(name or "replication_index")
