"""From checked arguments to a program that has run, or that a session runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final

from ipusim.api import models
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_outfeed_queue import sending_to
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.building import compiling
from ipusim.ipu.runtime.context import setting
from ipusim.ipu.runtime.distribution import variables_on_host
from ipusim.ipu.runtime.function_body import device
from ipusim.ipu.runtime.host import Tensor, example
from ipusim.ipu.runtime.layouts import Fed, Layouts
from ipusim.ipu.runtime.program_state import add
from ipusim.ipu.runtime.run import Pipeline
from ipusim.ipu.runtime.stage_call import Inputs
from ipusim.ipu.runtime.variable import NamedVariable

#: Whether a computation is being tried that may build no program of its own.
_STOPPING: Final[ContextVar[bool]] = ContextVar("stopping", default=False)


class ProgramReached(BaseException):
    """Leaves a computation at the first pipeline or loop that it builds."""


def stopping_at_programs() -> AbstractContextManager[Any]:
    """Raise ProgramReached in the block where a pipeline or a loop is built."""
    return setting(_STOPPING, True)


def examples(inputs: Any) -> tuple[tuple[Any, ...] | None, Any]:
    """Return a program's inputs as a session evaluates them, None where it runs at once, and values to try it on.

    Raises ProgramError for a tensor of the host where no session will run, and ProgramReached in a computation that may
    build no program.
    """
    if _STOPPING.get():
        raise ProgramReached
    values = models.as_results(inputs)
    if compiling() is not None:
        return values, tuple(map(example, values))
    inputs = tuple(item.value_now() if isinstance(item, NamedVariable) else item for item in values)
    for index, value in enumerate(inputs):
        if isinstance(value, Tensor):
            raise ProgramError(
                f"inputs[{index}]: expected a value, got {value!r}, which has one in a session alone: build the "
                "program in a function that ipu_compiler.compile compiles"
            )
    return None, inputs


def lay_out(
    arguments: Arguments,
    config: IPUConfig | None,
    symbols: Sequence[Any] | None,
    inputs: Inputs | None = None,
    fed: Fed | None = None,
) -> Pipeline:
    """Return the program: run once, or where a computation is being compiled, to be run by a session.

    Without a ``config`` it is the one that has been configured, if any. ``inputs`` hold those of the program as they
    are, by default as the arguments say; ``fed`` says what it becomes where a session feeds it other forms.
    """
    if arguments.training and arguments.host_gradients is None and variables_on_host():
        raise UnsupportedProgramError(
            "variables_on_host: Placing variables on the host is not currently supported in a pipeline, whose weight "
            "update is on its IPUs: expected a loop whose body enqueues its gradients"
        )
    with device(), sending_to(arguments.outfeed):
        programs = compiling()
        layouts = Layouts(arguments, inputs, config, fed, waits=programs is not None)
        result = Pipeline(layouts, symbols)
        if programs is None:
            result.run()
        else:
            for variable in layouts.variables.values():
                add(variable)
            programs.append(result)
    return result
