"""What programs leave in a process, which others would find there."""

from __future__ import annotations

import sys


def forget_programs() -> None:
    """Forget what programs have left: their configuration, which threads would find, seed, and variables by name."""
    if found := sys.modules.get("ipusim.ipu.runtime.program_state"):
        found.set_random_seed(0)
        found.configure(None)
        found.forget()
        found.wait_for_sessions(now=False)
