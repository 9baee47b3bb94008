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
    KeyPath,
    Request,
    RequestError,
    RequestMemoryError,
    Schedule,
    System,
    analysis,
    assemble,
    pipelines,
    rules,
    runs,
    schedules,
)
from ipusim.base.errors import DeviceError, OutOfMemoryError, ProgramError, RemoteMemoryError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.runtime.arguments import BACKWARD_OPTIONS, FORWARD_OPTIONS, UPDATE_OPTIONS, Arguments
from ipusim.ipu.runtime.devices import device_ordinal
from ipusim.ipu.runtime.distribution import Distribution, distribution
from ipusim.ipu.runtime.functions import Feed, TracedFunctions
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, PipelineStageOptions, poplar_options
from ipusim.ipu.runtime.poplar_flags import notes, uses_synthetic_data
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


#: What a loop without a pipeline has to say of its I/O tiles.
_NOT_OVERLAPPED: Final = (
    "io_tiles.place_ops_on_io_tiles will have no effect: the feeds of a loop are not overlapped with computation, as "
    "those of a pipeline with PipelineSchedule.Grouped are; the I/O tiles compute nothing all the same."
)


def _job_of(functions: TracedFunctions, config: IPUConfig | None, distribution: Distribution | None) -> Job:
    """Lay the pipeline out, where there is a ``distribution`` for one of several hosts.

    Raises UnsupportedProgramError and CountError as the schedule does, DeviceError for an unknown device,
    RemoteMemoryError for offloads without Streaming Memory, OutOfMemoryError for a pipeline that does not fit its
    IPUs, and ProgramError for anything else that a request may not ask for.
    """
    chosen, arguments = IPUConfig() if config is None else config, functions.arguments
    chosen.check()
    try:
        job = assemble(_request(functions, chosen, distribution, configured=config is not None))
    except RequestMemoryError as error:
        check_memory(error.job.memory, error.job.system, error.job.schedule)
        raise
    except RequestError as error:
        first = error.problems[0]
        raise first.error or ProgramError(f"{_argument(first.path)}: {first.text}") from None
    sent = () if arguments.outfeed is None else arguments.outfeed.notes
    left = (_NOT_OVERLAPPED,) if _leaves_io_tiles(arguments, chosen) else ()
    return replace(job, notes=(*job.notes, *chosen.notes(), *sent, *notes(), *left))


def _leaves_io_tiles(arguments: Arguments, config: IPUConfig) -> bool:
    """Tell whether a loop without a pipeline configures I/O tiles, with which none of its passes overlaps."""
    return config.io_tiles.place_ops_on_io_tiles and not schedules.find(arguments.schedule.value).pipelined


def _request(
    functions: TracedFunctions, config: IPUConfig, distribution: Distribution | None, *, configured: bool
) -> Request:
    options = request_options(functions.arguments, config, distribution, configured=configured)
    return Request(runs.validate(options), name=functions.arguments.name, functions=functions)


def request_options(
    arguments: Arguments, config: IPUConfig, distribution: Distribution | None = None, *, configured: bool
) -> dict[str, Any]:
    """Return the options of a request, by the keys of a scenario.

    Args:
        arguments: those of the pipeline or loop.
        config: configuration of the device.
        distribution: place among several hosts.
        configured: whether the program has configured the device, else it is the smallest.

    Raises:
        CountError: for a count that the schedule does not take.
        DeviceError: for a missing device.
    """
    schedule = schedules.find(arguments.schedule.value)
    if not arguments.count:  # a request's counts begin at 1; in Graphcore's words it is the schedule that takes none
        shape = pipelines.PlanShape(mapping=arguments.mapping, micro_batches=0, training=arguments.training)
        rules.check_count(0, schedule.multiple(shape))
    device = config.device(arguments.mapping, schedule.pipelined, configured=configured, ordinal=device_ordinal())
    options: dict[str, Any] = config.options()
    options["system"] |= device
    if _leaves_io_tiles(arguments, config):
        options["system"]["io_tiles"] = {**options["system"]["io_tiles"], "place_ops_on_io_tiles": False}
    if distribution is not None:
        options["system"]["host"] = {**options["system"].get("host", {}), **distribution.options()}
    options["pipeline"] |= _pipeline(arguments)
    if config.disturbances:
        options["disturbances"] = config.disturbances
    if uses_synthetic_data():
        options["use_synthetic_data"] = True
    if arguments.infeed is not None:
        options["infeed"] = {"prefetch_depth": arguments.infeed.prefetch_depth}
    return options


def _pipeline(arguments: Arguments) -> dict[str, Any]:
    """Return the pipeline's options by their own names, which are Graphcore's."""
    ipus = iter(arguments.mapping)
    devices = [[next(ipus) for _ in functions] for functions in arguments.stages]
    return {
        **arguments.options,
        "schedule": arguments.schedule.value,
        "device_mapping": [device if len(device) > 1 else device[0] for device in devices],
        "gradient_accumulation_count": arguments.count,
        "recomputation_mode": arguments.recomputation_mode.value,
        "reduction_method": arguments.reduction_method.value,
        FORWARD_OPTIONS: [_options(options, FORWARD_OPTIONS) for options in arguments.forward_options],
        BACKWARD_OPTIONS: [_options(options, BACKWARD_OPTIONS) for options in arguments.backward_options],
        UPDATE_OPTIONS: _options(arguments.update_options, UPDATE_OPTIONS),
    }


def _options(options: PipelineStageOptions, argument: str) -> dict[str, Any]:
    simulated = options.simulated(argument)
    return {
        "matmul_options": poplar_options(simulated.matmul),
        "convolution_options": poplar_options(simulated.convolution),
    }


def _argument(path: KeyPath) -> str:
    """Return an option by the name that it has in Graphcore's API, or would have there."""
    for prefix, rows in (("", runs.arguments()), ("IPUConfig.", runs.attributes())):
        for row in rows:
            if path[: len(row.path)] == row.path:
                return prefix + runs.dotted((row.name, *path[len(row.path) :]))
    section, *rest = path
    if section == "disturbances":
        return runs.dotted(("IPUConfig", *path))
    return runs.dotted({"pipeline": (), "system": ("IPUConfig",)}.get(str(section), (section,)) + tuple(rest))


_STAGES: Final = "the model into more computational_stages on more IPUs"


def check_memory(fit: analysis.Fit, system: System, schedule: Schedule) -> None:
    """Raise OutOfMemoryError, with a remedy, unless all fits the IPUs and the Streaming Memory beside them."""
    if fit.too_large:
        raise OutOfMemoryError(f"{fit.out_of_memory} {_remedy(fit, system, schedule)}")
    if fit.streaming:
        raise OutOfMemoryError(f"{fit.streaming} Offload less, or cut {_STAGES}.")


def _remedy(fit: analysis.Fit, system: System, schedule: Schedule) -> str:
    """Return a sentence on how to make the largest holder of the fullest IPU smaller."""
    shape, updating = fit.plan.shape, fit.too_large[0].op is None
    match fit.largest:
        case pipelines.Holder.FIFOS if not (shape.recompute or shape.recompute_inline):
            other = schedules.shallower(schedule, shape)
            name = other and PipelineSchedule(other).name
            shallower = f", take PipelineSchedule.{name}, whose FIFOs are half as deep" if other else ""
            return f"Set IPUConfig.allow_recompute{shallower}, or feed smaller micro-batches."
        case pipelines.Holder.STREAMS:
            return "Feed smaller micro-batches: a whole element of a queue lies on this IPU."
        case pipelines.Holder.LIVE if updating:
            return f"Cut {_STAGES}."
        case pipelines.Holder.FIFOS | pipelines.Holder.LIVE | pipelines.Holder.COPIES:
            return f"Feed smaller micro-batches, or cut {_STAGES}."
        case pipelines.Holder.STATE:
            enabled = "IPUConfig.device_connection.enable_remote_buffers"
            option = enabled if system.streaming is None else "offload_weight_update_variables"
            return f"Keep the optimizer's state in Streaming Memory with {option}, or cut {_STAGES}."
        case _:
            return f"Cut {_STAGES}, or take another device_mapping."
