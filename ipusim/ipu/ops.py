"""The package ``ipu.ops`` of Graphcore's API: modules of operations, which stand above it too."""

from __future__ import annotations

from ipusim.ipu import MODULES
from ipusim.ipu.runtime.offered import rows

__getattr__, __dir__ = rows(
    __name__,
    {
        name: f"ipusim.ipu.{name}"
        for name in MODULES.split()
        if name.endswith(("_op", "_ops")) and name != "summary_ops"
    },
)
