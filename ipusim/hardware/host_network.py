"""What hosts do together over their network: messages from host to host, of a fixed time and of their bytes."""

from __future__ import annotations

from typing import Any

from ipusim.hardware.formulas import Cycles
from ipusim.hardware.rounding import duration_cycles
from ipusim.hardware.system import System


def sum_cycles(system: System, byte_count: int) -> int:
    """Return the cycles in which all hosts sum up ``byte_count`` bytes of each, by a ring.

    Each of its 2 (n - 1) rounds passes on an n-th; additions take no time (assumed).
    """
    return _messages_cycles(system, 2 * (system.hosts - 1), -(-byte_count // system.hosts))


def gather_cycles(system: System, byte_count: int) -> int:
    """Return the cycles in which every host gets what each of the others has, at most ``byte_count`` bytes.

    A ring, in each of whose n - 1 rounds a host passes on what it has got last.
    """
    return _messages_cycles(system, system.hosts - 1, byte_count)


def broadcast_cycles(system: System, byte_count: int) -> int:
    """Return the cycles in which ``byte_count`` bytes of one host come to all.

    A binomial tree: in each round all that have them send them to one more each.
    """
    return _messages_cycles(system, (system.hosts - 1).bit_length(), byte_count)


def _messages_cycles(system: System, count: int, byte_count: int) -> int:
    """Return the cycles of so many messages from host to host, one after the other."""
    sent = system.transfer_cycles(byte_count, system.host.network_bytes_per_s)
    begun = 0 if system.free else duration_cycles(system.host.network_ns, system.clock_hz)
    return Cycles(_messages, count, begun, sent)


def _messages(count: Any, begun: Any, sent: Any) -> Any:
    return count * (begun + sent)
