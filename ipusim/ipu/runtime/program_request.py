"""Build requests from Graphcore's arguments and configuration, with errors in Graphcore's names.

A request holds a run's options by the keys of a scenario; a job is a request made ready to run on the simulated
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ipusim.api import (
    Job,
    KeyPath,
    Request,
    RequestError,
    RequestMemoryError,
    Schedule,
    System,
    analysis,
    assemble,
    hardware,
    pipelines,
    rules,
    runs,
    schedules,
)
from ipusim.base.errors import OutOfMemoryError, ProgramError
from ipusim.ipu.config import DeviceConnectionType, IPUConfig
from ipusim.ipu.runtime.arguments import BACKWARD_OPTIONS, FORWARD_OPTIONS, UPDATE_OPTIONS, Arguments
from ipusim.ipu.runtime.devices import device_ordinal
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, PipelineStageOptions, poplar_options
from ipusim.ipu.runtime.poplar_flags import notes, uses_synthetic_data
from ipusim.ipu.runtime.program_state import configured

#: Schedule of loops on one IPU.
_SINGLE: Final = schedules.find("single")
#: Option without a scenario key: number of replicas that normalise a batch together.
STATISTICS_GROUP: Final = "statistics_group"
#: Options that need remote memory.
_OFFLOADS: Final = ("offload_weight_update_variables", "offload_gradient_accumulation_buffers", "offload_activations")
#: Note for loops: without a pipeline, I/O tiles do not overlap feeds with computation.
_NOT_OVERLAPPED: Final = (
    "io_tiles.place_ops_on_io_tiles will have no effect: only pipelines with PipelineSchedule.Grouped overlap their "
    "feeds with computation, loops do not; the I/O tiles still compute nothing."
)


def placed_job(request: Request, config: IPUConfig | None, notes_of_queue: Sequence[str] = ()) -> Job:
    """Assemble a program's request, and add the notes of configuration and queue to the Job.

    Args:
        request: request of the program.
        config: configuration of the program; None for the active configuration.
        notes_of_queue: sentences about arguments of the outfeed.

    Raises:
        ProgramError: if the request is invalid; a schedule may raise UnsupportedProgramError and CountError.
        DeviceError: if the device does not exist.
        RemoteMemoryError: if the program offloads without Streaming Memory.
        OutOfMemoryError: if the program does not fit the IPUs.
    """
    configuration = config or configured() or IPUConfig()
    with _errors_in_graphcores_names():
        job = assemble(_with_remote_memory(request, configuration))
    overlap_note = (_NOT_OVERLAPPED,) if _ignores_io_tiles(job.schedule, configuration) else ()
    return replace(job, notes=(*job.notes, *configuration.notes(), *notes_of_queue, *notes(), *overlap_note))


def _with_remote_memory(request: Request, config: IPUConfig) -> Request:
    """Return a request with remote memory if the program offloads and is attached to a machine with this memory.

    Graphcore ignores ``enable_remote_buffers`` under ``DeviceConnectionType.ALWAYS``, and asks the device instead.
    """
    options = request.options
    has_memory = hardware.find_machine(options.system.name).streaming is not None
    offloads = any(getattr(options.pipeline, name) is True for name in _OFFLOADS)
    if not (offloads and has_memory and config.device_connection.type is DeviceConnectionType.ALWAYS):
        return request
    return request.replace({"system.enable_remote_buffers": True})


def validate_options(options: Mapping[str, Any]) -> runs.Options:
    """Return validated request options by key; raises ProgramError for invalid options."""
    with _errors_in_graphcores_names():
        return runs.validate({key: value for key, value in options.items() if key != STATISTICS_GROUP})


@contextmanager
def _errors_in_graphcores_names() -> Iterator[None]:
    """Raise the first problem of a request as an error under Graphcore's option name."""
    try:
        yield
    except RequestMemoryError as error:
        check_memory(error.job.memory, error.job.system, error.job.schedule)
        raise
    except RequestError as error:
        problem = error.problems[0]
        raise problem.error or ProgramError(f"{_argument_name(problem.path)}: {problem.text}") from None


def options_of_loop(
    ordinal: int, prefetch_depth: int | None = None, loop_config: IPUConfig | None = None
) -> Callable[[], dict[str, Any]]:
    """Return a function giving a loop's system options, for the configuration active at the call.

    Args:
        ordinal: number of the device.
        prefetch_depth: infeed elements kept ready by the host; None for a loop without an infeed.
        loop_config: configuration of the loop; None for the active configuration.
    """

    def options() -> dict[str, Any]:
        config = loop_config or configured()
        configuration = IPUConfig() if config is None else config
        device = configuration.device((0,), pipelined=False, is_configured=config is not None, ordinal=ordinal)
        result = _options_of_device(configuration, device, _SINGLE)
        if prefetch_depth is not None:
            result["infeed"] = {"prefetch_depth": prefetch_depth}
        return result

    return options


def _ignores_io_tiles(schedule: Schedule, config: IPUConfig) -> bool:
    """Tell whether the configuration places operations on I/O tiles in vain: only pipelines overlap feeds."""
    return config.io_tiles.place_ops_on_io_tiles and not schedule.pipelined


def _options_of_device(config: IPUConfig, device: Mapping[str, Any], schedule: Schedule) -> dict[str, Any]:
    """Return the options from configuration, device and environment."""
    options = config.options()
    options["system"] |= device
    if _ignores_io_tiles(schedule, config):
        options["system"]["io_tiles"] = {**options["system"]["io_tiles"], "place_ops_on_io_tiles": False}
    if config.statistics_group > 1:
        options[STATISTICS_GROUP] = config.statistics_group
    if config.disturbances:
        options["disturbances"] = config.disturbances
    if uses_synthetic_data():
        options["use_synthetic_data"] = True
    return options


def request_options(
    arguments: Arguments, config: IPUConfig, is_configured: bool, ordinal: int | None
) -> dict[str, Any]:
    """Return a program's request options, keyed like a scenario."""
    schedule = schedules.find(arguments.schedule.value)
    if not arguments.count:  # a request would refuse a count of 0 in its own words, so raise the schedule's error first
        shape = pipelines.PlanShape(mapping=arguments.mapping, micro_batches=0, training=arguments.training)
        rules.check_count(0, schedule.multiple(shape))
    number = device_ordinal() if ordinal is None else ordinal
    device = config.device(arguments.mapping, schedule.pipelined, is_configured=is_configured, ordinal=number)
    options = _options_of_device(config, device, schedule)
    options["pipeline"] |= _pipeline_options(arguments)
    if arguments.infeed is not None:
        options["infeed"] = {"prefetch_depth": arguments.infeed.prefetch_depth}
    return options


def _pipeline_options(arguments: Arguments) -> dict[str, Any]:
    """Return the pipeline options under Graphcore's names."""
    ipus = iter(arguments.mapping)
    devices = [[next(ipus) for _ in functions] for functions in arguments.stages]
    return {
        **arguments.options,
        "schedule": arguments.schedule.value,
        "device_mapping": [device if len(device) > 1 else device[0] for device in devices],
        "gradient_accumulation_count": arguments.count,
        "recomputation_mode": arguments.recomputation_mode.value,
        "reduction_method": arguments.reduction_method.value,
        FORWARD_OPTIONS: [_stage_options(options, FORWARD_OPTIONS) for options in arguments.forward_options],
        BACKWARD_OPTIONS: [_stage_options(options, BACKWARD_OPTIONS) for options in arguments.backward_options],
        UPDATE_OPTIONS: _stage_options(arguments.update_options, UPDATE_OPTIONS),
    }


def _stage_options(options: PipelineStageOptions, argument: str) -> dict[str, Any]:
    option = options.stage_options(argument)
    return {
        "matmul_options": poplar_options(option.matmul),
        "convolution_options": poplar_options(option.convolution),
    }


def _argument_name(path: KeyPath) -> str:
    """Return an option's name in Graphcore's API, or a similar name for an option of ipusim."""
    for prefix, rows in (("", runs.arguments()), ("IPUConfig.", runs.attributes())):
        for row in rows:
            if path[: len(row.path)] == row.path:
                return prefix + runs.dotted((row.name, *path[len(row.path) :]))
    section, *fields = path
    if section == "disturbances":
        return runs.dotted(("IPUConfig", *path))
    return runs.dotted({"pipeline": (), "system": ("IPUConfig",)}.get(str(section), (section,)) + tuple(fields))


#: Object of the advice to cut, in remedies.
_MODEL_INTO_STAGES: Final = "the model into more computational_stages on more IPUs"


def check_memory(fit: analysis.Fit, system: System, schedule: Schedule) -> None:
    """Raise OutOfMemoryError, with a remedy, unless the program fits IPUs and Streaming Memory."""
    if fit.too_large:
        raise OutOfMemoryError(f"{fit.out_of_memory} {_remedy(fit, system, schedule)}")
    if fit.streaming:
        raise OutOfMemoryError(f"{fit.streaming} Offload less, or cut {_MODEL_INTO_STAGES}.")


def _remedy(fit: analysis.Fit, system: System, schedule: Schedule) -> str:
    """Return advice against the largest use of memory, a Holder, on the fullest IPU."""
    shape = fit.plan.shape
    peaks_in_update = fit.too_large[0].op is None  # a peak outside of passes is in the weight update
    match fit.largest:
        case pipelines.Holder.FIFOS if not (shape.recompute or shape.recompute_inline):
            candidate = schedules.shallower(schedule, shape)
            name = candidate and PipelineSchedule(candidate).name
            shallower = f", take PipelineSchedule.{name}, whose FIFOs are half as deep" if candidate else ""
            return f"Set IPUConfig.allow_recompute{shallower}, or feed smaller micro-batches."
        case pipelines.Holder.STREAMS:
            return "Feed smaller micro-batches: a whole element of a queue lies on this IPU."
        case pipelines.Holder.LIVE if peaks_in_update:
            return f"Cut {_MODEL_INTO_STAGES}."
        case pipelines.Holder.FIFOS | pipelines.Holder.LIVE | pipelines.Holder.COPIES:
            return f"Feed smaller micro-batches, or cut {_MODEL_INTO_STAGES}."
        case pipelines.Holder.STATE:
            enabled = "IPUConfig.device_connection.enable_remote_buffers"
            option = enabled if system.streaming is None else "offload_weight_update_variables"
            return f"Keep the optimizer's state in Streaming Memory with {option}, or cut {_MODEL_INTO_STAGES}."
        case _:
            return f"Cut {_MODEL_INTO_STAGES}, or take another device_mapping."
