"""Run operations that only check or print."""

from __future__ import annotations

from ipusim.ipu.graph.registry import register_function

register_function("Assert PrintV2 ControlTrigger", lambda *values: None)
register_function("Print", lambda x, *values: x)
