"""Functions of Graphcore's ``replication_ops``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.ipu.cross_replica_ops import check_inside


def replication_index(name: str | None = None) -> Any:
    """Return which replica the stage runs in, an int32; raises ProgramError outside of a stage.

    Raises ModelError in a sharded loop, whose body is written down once for all replicas.
    """
    check_inside("replication_index")
    return np.array(functions.replica_index(), np.int32)
