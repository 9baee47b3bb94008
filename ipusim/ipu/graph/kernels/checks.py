"""Run operations that only check or print."""

from __future__ import annotations

from ipusim.ipu.graph.registry import kernel

kernel("Assert PrintV2 ControlTrigger")(lambda *values: None)
kernel("Print")(lambda x, *values: x)
