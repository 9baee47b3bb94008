"""From Graphcore's arguments and configuration to the Request that they make, and to its Job."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ipusim.errors import ProgramError
from ipusim.ipu.arguments import BACKWARD_OPTIONS, FORWARD_OPTIONS, UPDATE_OPTIONS, Arguments
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.feed import Feed
from ipusim.ipu.functions import TracedFunctions
from ipusim.ipu.memory import check_memory
from ipusim.ipu.traced import Traced
from ipusim.model.stages.stage_options import StageOptions
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_count
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.memory import RequestMemoryError
from ipusim.runs.job import Job
from ipusim.runs.problems import KeyPath, RequestError, dotted
from ipusim.runs.request.request import Request, validate
from ipusim.schedules.registry import find


def job_of(arguments: Arguments, traced: Traced, feed: Feed, config: IPUConfig | None) -> Job:
    """Lay the pipeline out.

    Raises UnsupportedProgramError and CountError as the schedule does, DeviceError for a device that there is not,
    RemoteMemoryError for offloads without Streaming Memory, OutOfMemoryError for a pipeline that does not fit its
    IPUs, and ProgramError for anything else that a request may not ask for.
    """
    chosen = IPUConfig() if config is None else config
    chosen.check()
    try:
        return assemble(_request(arguments, traced, feed, chosen, configured=config is not None))
    except RequestMemoryError as error:
        check_memory(error.job.memory, error.job.system)
        raise
    except RequestError as error:
        first = error.problems[0]
        raise first.error or ProgramError(f"{_argument(first.path)}: {first.text}") from None


def _request(arguments: Arguments, traced: Traced, feed: Feed, config: IPUConfig, *, configured: bool) -> Request:
    schedule = find(arguments.schedule.value)
    if not arguments.count:  # a request's counts begin at 1; in Graphcore's words it is the schedule that takes none
        shape = PlanShape(mapping=arguments.mapping, micro_batches=0, training=arguments.training)
        check_count(0, schedule.multiple(shape))
    device = config.device(arguments.mapping, schedule.pipelined, configured=configured)
    general = config.general_options()
    tiles = config.io_tiles
    system = {
        **device,
        "selection_order": config.selection_order.value,
        "enable_remote_buffers": config.device_connection.enable_remote_buffers,
        "io_tiles": {
            "num_io_tiles": tiles.num_io_tiles,
            "place_ops_on_io_tiles": tiles.place_ops_on_io_tiles,
            "available_memory_proportion": float(tiles.available_memory_proportion),
        },
        "matmuls": {"poplar_options": _share(general.matmul)},
        "convolutions": {"poplar_options": _share(general.convolution)},
        "minimum_remote_tensor_size": config.optimizations.minimum_remote_tensor_size,
    }
    functions = TracedFunctions(arguments, traced, feed)
    options: dict[str, Any] = {"system": system, "pipeline": _pipeline(arguments, config, functions.parts)}
    if arguments.infeed is not None:
        options["infeed"] = {"prefetch_depth": arguments.infeed.prefetch_depth}
    return Request(validate(options), name=arguments.name, functions=functions)


def _pipeline(arguments: Arguments, config: IPUConfig, parts: tuple[int, ...]) -> dict[str, Any]:
    """Return the pipeline's options by their own names, which are Graphcore's."""
    ipus = iter(arguments.mapping)
    places = [[next(ipus) for _ in range(size)] for size in parts]
    same = (
        "batch_serialization_iterations",
        "repeat_count",
        "offload_weight_update_variables",
        "offload_gradient_accumulation_buffers",
        "offload_activations",
        "offload_weights",
        "replicated_weight_sharding",
        "replicated_optimizer_state_sharding",
    )
    return {
        **{name: getattr(arguments, name) for name in same},
        "schedule": arguments.schedule.value,
        "device_mapping": [each if len(each) > 1 else each[0] for each in places],
        "gradient_accumulation_count": arguments.count,
        "allow_recompute": config.allow_recompute,
        "recomputation_mode": arguments.recomputation_mode.value,
        "reduction_method": arguments.reduction_method.reduction,
        FORWARD_OPTIONS: [_options(each.simulated(FORWARD_OPTIONS)) for each in arguments.forward_options],
        BACKWARD_OPTIONS: [_options(each.simulated(BACKWARD_OPTIONS)) for each in arguments.backward_options],
        UPDATE_OPTIONS: _options(arguments.update_options.simulated(UPDATE_OPTIONS)),
    }


def _options(options: StageOptions) -> dict[str, Any]:
    return {"matmul_options": _share(options.matmul), "convolution_options": _share(options.convolution)}


def _share(proportion: Fraction | None) -> dict[str, Any]:
    return {"availableMemoryProportion": None if proportion is None else float(proportion)}


def _argument(path: KeyPath) -> str:
    """Return an option by the name that it has in Graphcore's API."""
    match path:
        case ("pipeline", *rest):
            return dotted(tuple(rest))
        case ("system", *rest):
            return dotted(("IPUConfig", *rest))
        case ("infeed" | "outfeed" as queue, *rest):
            return dotted((f"{queue}_queue", *rest))
    return dotted(path)
