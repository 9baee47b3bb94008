"""From checked arguments to a program that has run, or that a session runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final

from ipusim.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.arguments import Arguments
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.configured import configured
from ipusim.ipu.distribution import distribution, variables_on_host
from ipusim.ipu.feed import Feed
from ipusim.ipu.host import Tensor, compiling, example
from ipusim.ipu.ipu_outfeed_queue import sending_to
from ipusim.ipu.one_at_a_time import device
from ipusim.ipu.request import job_of
from ipusim.ipu.run import Pipeline, Placed
from ipusim.ipu.stage_call import Inputs
from ipusim.ipu.traced import Traced, trace
from ipusim.ipu.variable import NamedVariable
from ipusim.ipu.variable_store import add, using
from ipusim.model.stages.function_stage import as_results

#: Whether a computation is being tried that may build no program of its own.
_STOPPING: Final[ContextVar[bool]] = ContextVar("stopping", default=False)


class ProgramReached(BaseException):
    """Leaves a computation at the first pipeline or loop that it builds."""


@contextmanager
def stopping_at_programs() -> Iterator[None]:
    """Raise ProgramReached in the block where a pipeline or a loop is built."""
    token = _STOPPING.set(True)
    try:
        yield
    finally:
        _STOPPING.reset(token)


def examples(inputs: Any) -> tuple[tuple[Any, ...] | None, Any]:
    """Return a program's inputs as a session evaluates them, None where it runs at once, and values to try it on.

    Raises ProgramError for a tensor of the host where no session will run, and ProgramReached in a computation that may
    build no program.
    """
    if _STOPPING.get():
        raise ProgramReached
    values = as_results(inputs)
    if compiling() is not None:
        return values, tuple(map(example, values))
    inputs = tuple(each.value_now() if isinstance(each, NamedVariable) else each for each in values)
    for place, value in enumerate(inputs):
        if isinstance(value, Tensor):
            raise ProgramError(
                f"inputs[{place}]: expected a value, got {value!r}, which has one in a session alone: build the "
                "program in a function that ipu_compiler.compile compiles"
            )
    return None, inputs


def lay_out(
    arguments: Arguments, config: IPUConfig | None, symbols: Sequence[Any] | None, inputs: Inputs | None = None
) -> Pipeline:
    """Return the program: run once, or where a computation is being compiled, to be run by a session.

    Without a ``config`` it is the one that has been configured, if any. ``inputs`` hold those of the program as they
    are, by default as the arguments say.
    """
    if arguments.training and arguments.host_gradients is None and variables_on_host():
        raise UnsupportedProgramError(
            "variables_on_host: Placing variables on the host is not currently supported in a pipeline, whose weight "
            "update is on its IPUs: expected a loop whose body enqueues its gradients"
        )
    with device(), sending_to(arguments.outfeed):
        with using() as asked_for:
            asked = configured() if config is None else config
            traced = trace(arguments, inputs, 1 if asked is None else asked.statistics_group)
            feed = Feed(arguments, traced.inputs)
            placed = _placed(asked, arguments, traced, feed)
        programs = compiling()
        latest = None
        if programs is not None and config is None:
            latest = _Latest(asked, lambda asked: _placed(asked, arguments, traced, feed))
        found = Pipeline(arguments, traced, feed, placed, symbols, asked_for, latest)
        if programs is None:
            found.run()
        else:
            for variable in asked_for.values():
                add(variable)
            programs.append(found)
    return found


def _placed(asked: IPUConfig | None, arguments: Arguments, traced: Traced, feed: Feed) -> Placed:
    """Return the program on the device that is ``asked`` for, on the smallest where none is."""
    hosts = distribution(0 if asked is None else asked.experimental.multi_replica_distribution.process_count)
    traced.names.group = 1 if asked is None else asked.statistics_group
    return Placed(job_of(arguments, traced, feed, asked, hosts), hosts)


class _Latest:
    """Lays a program out again where another device has been configured since.

    As in Graphcore's, the configuration holds in which a session runs the program first, and ``configure_ipu_system``
    may come after ``compile``.
    """

    def __init__(self, asked: IPUConfig | None, placed: Callable[[IPUConfig], Placed]) -> None:
        """Take the configuration that the program is laid out for, and what lays it out for another."""
        self._asked, self._placed = asked, placed
        self._context = copy_context()  # where scopes, strategies and names are as they were

    def __call__(self) -> Placed | None:
        """Return the program on the device that is configured now; None where that is no other."""
        asked = configured()
        if asked is None or asked is self._asked:
            return None
        placed = self._context.run(self._placed, asked)
        self._asked = asked
        return placed
