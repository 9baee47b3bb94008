"""What programs leave in a process, which others would find there."""

from __future__ import annotations

import sys


def forget_programs() -> None:
    """Forget what programs have left: their configuration, which threads would find."""
    if found := sys.modules.get("ipusim.ipu.runtime.program_state"):
        found.configure(None)
