"""Price collectives of hosts over their network, as messages with a fixed time plus transfer time."""

from __future__ import annotations

from typing import Any

from ipusim.hardware.formulas import Cycles
from ipusim.hardware.rounding import duration_cycles
from ipusim.hardware.system import System


def sum_cycles(system: System, byte_count: int) -> int:
    """Return the cycles of a ring all-reduce over the n hosts, with ``byte_count`` bytes per host.

    In each of 2 (n - 1) rounds, every host sends an n-th of the bytes; additions are free (assumed).
    """
    return _messages_cycles(system, 2 * (system.hosts - 1), -(-byte_count // system.hosts))


def gather_cycles(system: System, byte_count: int) -> int:
    """Return the cycles of a ring all-gather over the hosts, with at most ``byte_count`` bytes per host.

    In each of n - 1 rounds, every host sends the data that it received last.
    """
    return _messages_cycles(system, system.hosts - 1, byte_count)


def broadcast_cycles(system: System, byte_count: int) -> int:
    """Return the cycles of a broadcast of ``byte_count`` bytes from a host to the others.

    Binomial tree: in a round, every host with the data sends to one more host.
    """
    return _messages_cycles(system, (system.hosts - 1).bit_length(), byte_count)


def _messages_cycles(system: System, count: int, byte_count: int) -> int:
    """Return the cycles of ``count`` consecutive messages between hosts, as Cycles with their formula."""
    transfer = system.transfer_cycles(byte_count, system.host.network_bytes_per_s)
    start = 0 if system.free else duration_cycles(system.host.network_ns, system.clock_hz)
    return Cycles(_messages_formula, count, start, transfer)


def _messages_formula(count: Any, start: Any, transfer: Any) -> Any:
    return count * (start + transfer)
