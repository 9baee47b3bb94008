"""The simulated hosts as Horovod's processes: who they are, and how they are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ipusim.errors import ProgramStateError
from ipusim.ipu import checks
from ipusim.ipu.loop_body import check_call
from ipusim.ipu.recording import recorder, recording
from ipusim.machine.hosts import host_count, run_together, this_host

#: Hosts that one process simulates at most, as in a scenario.
MOST: Final = 1024


def init() -> None:
    """Do nothing: a simulated host is there from its beginning."""


def shutdown() -> None:
    """Do nothing: a simulated host ends with its program."""


def is_initialized() -> bool:
    """Return that it is."""
    return True


def size() -> int:
    """Return how many hosts there are."""
    return host_count()


def rank() -> int:
    """Return the number of this one, from 0 up."""
    host = this_host()
    return 0 if host is None else host.rank


def local_size() -> int:
    """Return how many processes this host has: one."""
    return 1


def local_rank() -> int:
    """Return the number of this process among those of its host."""
    return 0


cross_size, cross_rank = size, rank


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 1,  # Horovod's name
) -> list[Any]:
    """Call a function on ``np`` simulated hosts, in turns in this process, and return its results by rank.

    What the caller has configured each host begins with; what one host configures is its own. Of profiles around
    the call the first host's programs are part, which stand for all.

    Raises ProgramTypeError and ProgramError for arguments that it does not take, ProgramStateError on a host that
    ``run`` has started, and where a host waits for what will not come; and what the function raises.
    """
    named = check_call("func", func, args, kwargs)
    count = checks.whole("np", np, 1)
    if count > MOST:
        checks.wrong_value("np", f"at most {MOST:,} hosts", count)
    if this_host() is not None:
        raise ProgramStateError(
            "horovod.run: expected to be called outside of the hosts that it or `ipusim run --hosts` starts, got a "
            "call on one"
        )
    return on_hosts(partial(func, *args, **named), count)


def on_hosts(function: Callable[[], Any], count: int, turn: Callable[[int], None] = lambda _: None) -> list[Any]:
    """Call a function on so many hosts and return its results by rank; a recorder sees the first host's programs.

    ``turn`` is called with the rank of the host that goes on next.
    """

    def call() -> Any:
        with recording(recorder() if rank() == 0 else None):
            return function()

    return run_together([call] * count, turn)
