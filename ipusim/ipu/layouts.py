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

from ipusim.errors import DeviceError, OutOfMemoryError, RemoteMemoryError
from ipusim.ipu.arguments import Arguments
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.configured import configured
from ipusim.ipu.distribution import Distribution, distribution
from ipusim.ipu.feed import Feed
from ipusim.ipu.functions import outfeed_of
from ipusim.ipu.request import job_of
from ipusim.ipu.stage_call import Inputs
from ipusim.ipu.traced import Traced, trace
from ipusim.ipu.variable_store import using
from ipusim.model.layers.layer import Array
from ipusim.pipeline.program import Outfeed
from ipusim.runs.job import Job

Values = Sequence[Any]
#: Values of tensors of the host that a body captures, by tensor.
Captured = Mapping[Any, Array]
#: What another device than the smallest may allow.
_OF_THE_DEVICE: Final = (DeviceError, OutOfMemoryError, RemoteMemoryError)


class Fed(NamedTuple):
    """What a session feeds a program.

    Attributes:
        examples: arrays of the forms that the program is tried on.
        again: from arrays of other forms, and values of what the program captures, to its arguments for these, and its
            inputs where they are not as these say.
    """

    examples: Values
    again: Callable[[Values, Captured], tuple[Arguments, Inputs | None]]


@dataclass(frozen=True, eq=False)
class Layout:
    """A program for one device and one form of what it is fed.

    Attributes:
        arguments: what it is made of.
        traced, feed: its stages, and the micro-batches that come to them.
        shapes: of what it is fed, and of what it captures.
        asked: the configuration of its device, None for the smallest.
        job: what runs; None where the smallest device does not take it.
        distribution: on which of several hosts it trains, None alone.
    """

    arguments: Arguments
    traced: Traced
    feed: Feed
    shapes: tuple[tuple[int, ...], ...]
    asked: IPUConfig | None
    job: Job | None = None
    distribution: Distribution | None = None

    @property
    def replicas(self) -> int:
        """The replicas of the program; one as long as no device takes it."""
        return 1 if self.job is None else self.job.system.replicas

    @property
    def outfeed(self) -> Outfeed:
        """Which of the last stage's results are sent, and how."""
        return outfeed_of(self.arguments, self.traced)


class Layouts:
    """The layouts of one program, by what it is fed.

    Attributes:
        first: the one that it begins with.
        variables: those that it asks for, by name.
    """

    def __init__(
        self, arguments: Arguments, inputs: Inputs | None, config: IPUConfig | None, fed: Fed | None, *, waits: bool
    ) -> None:
        """Lay the program out, for ``config`` or what is configured.

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
        asked = configured() if config is None else config
        with using() as self.variables:
            self.first = _traced(arguments, inputs, () if fed is None else fed.examples, asked)
            self._context = copy_context()  # where scopes, strategies and names are as they were
            try:
                self.first = _placed(self.first, asked)
            except _OF_THE_DEVICE:
                if not waits or asked is not None:
                    raise
        self._by_shapes = {self.first.shapes: self.first}

    def now(self, layout: Layout, values: Values | None, captured: Captured) -> Layout:
        """Return the layout for the device that is configured now, and for ``values``, by default as ``layout`` is.

        Raises IpusimError as the constructor does; what no device has taken so far must be taken now.
        """
        asked = (configured() if self._config is None else None) or layout.asked
        wanted = layout
        if values is not None and self._fed is not None:
            shapes = (*map(np.shape, values), *(each.shape for each in captured.values()))
            if shapes != layout.shapes:
                wanted = self._by_shapes.get(shapes) or self._context.run(self._again, values, captured, asked)
        if wanted.job is None or wanted.asked is not asked:
            wanted = self._context.run(_placed, wanted, asked)
        self._by_shapes[wanted.shapes] = wanted
        return wanted

    def _again(self, values: Values, captured: Captured, asked: IPUConfig | None) -> Layout:
        """Return the program traced on other values, with the variables that it has."""
        assert self._fed is not None
        with using() as variables:
            variables.update(self.variables)
            return _traced(*self._fed.again(values, captured), values, asked)


def _traced(arguments: Arguments, inputs: Inputs | None, values: Values, asked: IPUConfig | None) -> Layout:
    traced = trace(arguments, inputs, 1 if asked is None else asked.statistics_group)
    captured = () if arguments.captures is None else arguments.captures.shapes
    return Layout(arguments, traced, Feed(arguments, traced.inputs), (*map(np.shape, values), *captured), asked)


def _placed(layout: Layout, asked: IPUConfig | None) -> Layout:
    """Return a program on the device that is ``asked`` for, on the smallest where none is."""
    hosts = distribution(0 if asked is None else asked.experimental.multi_replica_distribution.process_count)
    layout.traced.names.group = 1 if asked is None else asked.statistics_group
    job = job_of(layout.arguments, layout.traced, layout.feed, asked, hosts)
    return replace(layout, asked=asked, job=job, distribution=hosts)
