"""A program laid out: on the device that is configured, for the forms of what it is fed.

As in Graphcore's, ``ipu_compiler.compile`` writes a program down, and a session compiles it when it runs: on the device
that is configured then, for what it feeds, and again whenever either is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ipusim.api import (
    Array,
    Job,
    Request,
    runs,
)
from ipusim.base.errors import DeviceError, OutOfMemoryError, RemoteMemoryError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.distribution import Distribution, distribution
from ipusim.ipu.runtime.functions import Feed, TracedFunctions
from ipusim.ipu.runtime.program_request import job_of
from ipusim.ipu.runtime.program_state import configured, using
from ipusim.ipu.runtime.stage_call import Inputs
from ipusim.ipu.runtime.traced import trace

Values = Sequence[Any]
#: Values of tensors of the host that a body captures, by tensor.
Captured = Mapping[Any, Array]
#: What another device than the smallest may allow.
_OF_THE_DEVICE: Final = (DeviceError, OutOfMemoryError, RemoteMemoryError)


class Fed(NamedTuple):
    """The inputs that a session feeds to a program.

    Attributes:
        examples: arrays of the forms that the program is tried on.
        rebuild: from arrays of other forms, and values of what the program captures, to arguments for these, and its
            inputs where they are not as these say.
    """

    examples: Values
    rebuild: Callable[[Values, Captured], tuple[Arguments, Inputs | None]]


@dataclass(frozen=True, eq=False)
class Layout:
    """A program for one device and one form of what it is fed.

    Attributes:
        functions: its stages, and the micro-batches that come to them.
        shapes: of what it is fed, and of what it captures.
        config: the configuration of its device, None for the smallest.
        job: what runs; None where the smallest device does not take it.
        distribution: on which of several hosts it trains, None alone.
    """

    functions: TracedFunctions
    shapes: tuple[tuple[int, ...], ...]
    config: IPUConfig | None
    job: Job | None = None
    distribution: Distribution | None = None

    @property
    def replicas(self) -> int:
        """The replicas of the program; one as long as no device takes it."""
        return 1 if self.job is None else self.job.system.replicas


class Layouts:
    """The layouts of one program, by what it is fed.

    Attributes:
        first: the one that it begins with.
        variables: those that it asks for, by name.
    """

    def __init__(
        self, arguments: Arguments, inputs: Inputs | None, config: IPUConfig | None, fed: Fed | None, *, waits: bool
    ) -> None:
        """Lay the program out for ``config``, by default for the configuration in effect.

        Args:
            arguments: what it is made of.
            inputs: those of the program as they are, by default as the arguments say.
            config: its own configuration; without one that which holds whenever it runs.
            fed: what a session feeds it; None where the forms of that are always the same.
            waits: whether it runs later: what the smallest device refuses, another may allow that is configured by
                then.

        Raises:
            IpusimError: as tracing and laying out do.
        """
        self._config, self._fed = config, fed
        requested = configured() if config is None else config
        with using() as self.variables:
            self.first = _traced(arguments, inputs, () if fed is None else fed.examples, requested)
            self._context = copy_context()  # where scopes, strategies and names are as they were
            try:
                self.first = _placed(self.first, requested)
            except _OF_THE_DEVICE:
                if not waits or requested is not None:
                    raise
        self._by_shapes = {self.first.shapes: self.first}

    def now(self, layout: Layout, values: Values | None, captured: Captured) -> Layout:
        """Return the layout for the device that is configured now, and for ``values``, by default as ``layout`` is.

        Raises IpusimError as the constructor does; what no device has taken so far must be taken now.
        """
        config = (configured() if self._config is None else None) or layout.config
        current = layout
        if values is not None and self._fed is not None:
            shapes = (*map(np.shape, values), *(array.shape for array in captured.values()))
            if shapes != layout.shapes:
                current = self._by_shapes.get(shapes) or self._context.run(self._retrace, values, captured, config)
        if current.job is None or current.config is not config:
            current = self._context.run(_placed, current, config)
        self._by_shapes[current.shapes] = current
        return current

    def _retrace(self, values: Values, captured: Captured, config: IPUConfig | None) -> Layout:
        """Return the program traced on other values, with the variables that it has."""
        assert self._fed is not None
        with using() as variables:
            variables.update(self.variables)
            return _traced(*self._fed.rebuild(values, captured), values, config)


def _traced(arguments: Arguments, inputs: Inputs | None, values: Values, config: IPUConfig | None) -> Layout:
    traced = trace(arguments, inputs, 1 if config is None else config.statistics_group)
    captured = () if arguments.captures is None else arguments.captures.shapes
    functions = TracedFunctions(arguments, traced, Feed(arguments, traced.inputs))
    return Layout(functions, (*map(np.shape, values), *captured), config)


def _placed(layout: Layout, config: IPUConfig | None) -> Layout:
    """Return a layout on the device of ``config``, or on the smallest device where it is None."""
    hosts = distribution(0 if config is None else config.experimental.multi_replica_distribution.process_count)
    layout.functions.traced.names.group = 1 if config is None else config.statistics_group
    return replace(layout, config=config, job=_job_of(layout.functions, config, hosts), distribution=hosts)


def _job_of(functions: TracedFunctions, config: IPUConfig | None, distribution: Distribution | None) -> Job:
    """Lay the pipeline out, where there is a ``distribution`` for one of several hosts; raises as :func:`job_of`."""
    arguments = functions.arguments

    def request(options: Mapping[str, Any]) -> Request:
        return Request(runs.validate(options), name=arguments.name, functions=functions)

    return job_of(arguments, config, distribution, request)
