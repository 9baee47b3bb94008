"""Offer simulated hosts under Horovod's names, with one Horovod process per host."""

from __future__ import annotations

from ipusim.api import machine


def init() -> None:
    """Do nothing: simulated hosts need no start."""


def shutdown() -> None:
    """Do nothing: a simulated host ends with the host's program."""


def is_initialized() -> bool:
    """Return True."""
    return True


def size() -> int:
    """Return the number of hosts."""
    return machine.host_count()


def rank() -> int:
    """Return this host's number, starting from 0."""
    host = machine.this_host()
    return 0 if host is None else host.rank


def local_size() -> int:
    """Return the number of processes per host: one."""
    return 1


def local_rank() -> int:
    """Return this process's number on the host."""
    return 0


cross_size, cross_rank = size, rank
