"""From Graphcore's arguments and configuration to the Request that they make, and to its Job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ipusim.errors import ProgramError
from ipusim.ipu.arguments import BACKWARD_OPTIONS, FORWARD_OPTIONS, UPDATE_OPTIONS, Arguments
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.device_ordinal import device_ordinal
from ipusim.ipu.distribution import Distribution
from ipusim.ipu.feed import Feed
from ipusim.ipu.functions import TracedFunctions
from ipusim.ipu.memory import check_memory
from ipusim.ipu.poplar_flags import notes, uses_synthetic_data
from ipusim.ipu.stage_options import poplar_options
from ipusim.ipu.traced import Traced
from ipusim.model.stages.stage_options import StageOptions
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_count
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.memory import RequestMemoryError
from ipusim.runs.job import Job
from ipusim.runs.problems import KeyPath, RequestError, dotted
from ipusim.runs.request.graphcore_options import arguments, attributes
from ipusim.runs.request.request import Request, validate
from ipusim.schedules.registry import find

#: What a loop without a pipeline has to say of its I/O tiles.
_NOT_OVERLAPPED: Final = (
    "io_tiles.place_ops_on_io_tiles will have no effect: the feeds of a loop are not overlapped with computation, as "
    "those of a pipeline with PipelineSchedule.Grouped are; the I/O tiles compute nothing all the same."
)


def job_of(
    asked: Arguments, traced: Traced, feed: Feed, config: IPUConfig | None, distribution: Distribution | None = None
) -> Job:
    """Lay the pipeline out, where there is a ``distribution`` for one of several hosts.

    Raises UnsupportedProgramError and CountError as the schedule does, DeviceError for a device that there is not,
    RemoteMemoryError for offloads without Streaming Memory, OutOfMemoryError for a pipeline that does not fit its
    IPUs, and ProgramError for anything else that a request may not ask for.
    """
    chosen = IPUConfig() if config is None else config
    chosen.check()
    try:
        job = assemble(_request(asked, traced, feed, chosen, distribution, configured=config is not None))
    except RequestMemoryError as error:
        check_memory(error.job.memory, error.job.system, error.job.schedule)
        raise
    except RequestError as error:
        first = error.problems[0]
        raise first.error or ProgramError(f"{_argument(first.path)}: {first.text}") from None
    sent = () if asked.outfeed is None else asked.outfeed.notes
    left = (_NOT_OVERLAPPED,) if _leaves_io_tiles(asked, chosen) else ()
    return replace(job, notes=(*job.notes, *chosen.notes(), *sent, *notes(), *left))


def _leaves_io_tiles(asked: Arguments, config: IPUConfig) -> bool:
    """Tell whether a loop without a pipeline asks for feeds on I/O tiles: none of its passes runs beside them."""
    return config.io_tiles.place_ops_on_io_tiles and not find(asked.schedule.value).pipelined


def _request(
    asked: Arguments,
    traced: Traced,
    feed: Feed,
    config: IPUConfig,
    distribution: Distribution | None,
    *,
    configured: bool,
) -> Request:
    schedule = find(asked.schedule.value)
    if not asked.count:  # a request's counts begin at 1; in Graphcore's words it is the schedule that takes none
        shape = PlanShape(mapping=asked.mapping, micro_batches=0, training=asked.training)
        check_count(0, schedule.multiple(shape))
    device = config.device(asked.mapping, schedule.pipelined, configured=configured, ordinal=device_ordinal())
    functions = TracedFunctions(asked, traced, feed)
    options: dict[str, Any] = config.options()
    options["system"] |= device
    if _leaves_io_tiles(asked, config):
        options["system"]["io_tiles"] = {**options["system"]["io_tiles"], "place_ops_on_io_tiles": False}
    if distribution is not None:
        options["system"]["host"] = {**options["system"].get("host", {}), **distribution.options()}
    options["pipeline"] |= _pipeline(asked, functions.parts)
    if uses_synthetic_data():
        options["use_synthetic_data"] = True
    if asked.infeed is not None:
        options["infeed"] = {"prefetch_depth": asked.infeed.prefetch_depth}
    return Request(validate(options), name=asked.name, functions=functions)


def _pipeline(asked: Arguments, parts: tuple[int, ...]) -> dict[str, Any]:
    """Return the pipeline's options by their own names, which are Graphcore's."""
    ipus = iter(asked.mapping)
    devices = [[next(ipus) for _ in range(size)] for size in parts]
    return {
        **asked.options,
        "schedule": asked.schedule.value,
        "device_mapping": [each if len(each) > 1 else each[0] for each in devices],
        "gradient_accumulation_count": asked.count,
        "recomputation_mode": asked.recomputation_mode.value,
        "reduction_method": asked.reduction_method.reduction,
        FORWARD_OPTIONS: [_options(each.simulated(FORWARD_OPTIONS)) for each in asked.forward_options],
        BACKWARD_OPTIONS: [_options(each.simulated(BACKWARD_OPTIONS)) for each in asked.backward_options],
        UPDATE_OPTIONS: _options(asked.update_options.simulated(UPDATE_OPTIONS)),
    }


def _options(options: StageOptions) -> dict[str, Any]:
    return {
        "matmul_options": poplar_options(options.matmul),
        "convolution_options": poplar_options(options.convolution),
    }


def _argument(path: KeyPath) -> str:
    """Return an option by the name that it has in Graphcore's API, or would have there."""
    for prefix, rows in (("", arguments()), ("IPUConfig.", attributes())):
        for row in rows:
            if path[: len(row.path)] == row.path:
                return prefix + dotted((row.name, *path[len(row.path) :]))
    section, *rest = path
    return dotted({"pipeline": (), "system": ("IPUConfig",)}.get(str(section), (section,)) + tuple(rest))
