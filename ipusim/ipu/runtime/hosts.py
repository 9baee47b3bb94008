"""Which of the simulated hosts a program runs on, in Horovod's names: one process of Horovod's for each host."""

from __future__ import annotations

from ipusim.api import machine


def init() -> None:
    """Do nothing: a simulated host is there from its beginning."""


def shutdown() -> None:
    """Do nothing: a simulated host ends with its program."""


def is_initialized() -> bool:
    """Return that it is."""
    return True


def size() -> int:
    """Return how many hosts there are."""
    return machine.host_count()


def rank() -> int:
    """Return the number of this one, from 0 up."""
    host = machine.this_host()
    return 0 if host is None else host.rank


def local_size() -> int:
    """Return how many processes this host has: one."""
    return 1


def local_rank() -> int:
    """Return the number of this process among those of its host."""
    return 0


cross_size, cross_rank = size, rank
