"""Write a program's run as a scenario that takes the same time to the cycle."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ipusim.api import Job, Request, Session, Span, Timeline, assemble, pipelines, runs
from ipusim.base.errors import IpusimError, UnsupportedProgramError
from ipusim.ipu.graph.traced_functions import StepFunctions
from ipusim.ipu.programs import as_layers
from ipusim.ipu.programs.layer_names import short_names

#: Characters per comment line.
_LINE_WIDTH: Final = 110


@dataclass(frozen=True)
class ProgramScenario:
    """Scenario of a program.

    Attributes:
        request: request of the scenario.
        comments: lines about parts of the program that the scenario omits.
    """

    request: Request
    comments: tuple[str, ...]


def as_scenario(job: Job, description: str = "") -> ProgramScenario:
    """Convert a program to a scenario of layers, or else of stage costs.

    Raises UnsupportedProgramError if neither takes the program's time, or if a stage has collectives, look-ups on the
    host, or computations on the host.
    """
    functions = job.request.functions
    assert isinstance(functions, StepFunctions)
    _refuse_what_scenarios_do_not_say(job)
    if job.between:
        raise UnsupportedProgramError(
            f"no scenario takes the same time as the program {job.name!r}: its hosts exchange tensors or weights "
            "between its session runs"
        )
    expected = _step_timeline(job)
    try:
        result = _scenario_request(job, as_layers.in_layers(job, functions), description)
        _check_time(result, expected)
        return ProgramScenario(result, as_layers.NOT_SAID)
    except IpusimError as error:
        reason = str(error)
    try:
        result = _scenario_request(job, in_costs(job, functions), description)
        _check_time(result, expected)
    except IpusimError as error:
        raise UnsupportedProgramError(
            f"no scenario takes the same time as the program {job.name!r}. With its layers: {reason}. With the costs "
            f"of its stages: {error}"
        ) from None
    return ProgramScenario(
        result, (*NOT_SAID, *textwrap.wrap(f"The scenario has costs in place of layers: {reason}.", _LINE_WIDTH))
    )


def _refuse_what_scenarios_do_not_say(job: Job) -> None:
    """Refuse features without a scenario key: collectives within stages, and exchange between stages and host."""
    stages = job.program.stages
    causes = [
        f"replicas call {calls[0].call} in {stages[number].name}"
        for (_, number), calls in job.costs.collectives.items()
    ]
    causes += ["its host waits for slower ones"] if job.late else []
    causes += ["the host applies gradients"] if not job.program.sums_over_hosts else []
    causes += [f"{stages[number].name} looks up rows in tables on the host" for number in job.costs.tables]
    causes += [
        f"{stages[number].name} has the host compute {calls[0].call.name!r}"
        for (_, number), calls in job.costs.host_calls.items()
    ]
    if causes:
        raise UnsupportedProgramError(
            f"no scenario takes the same time as the program {job.name!r}: {causes[0]}, which a scenario cannot express"
        )


def _scenario_request(job: Job, sections: Mapping[str, Any], description: str) -> Request:
    """Return the request of a scenario with the ``sections``; raises RequestError for a refused scenario."""
    options = job.request.without_defaults()
    pipeline = dict(options.get("pipeline", {}))
    if "model" not in sections:
        for key in [key for key in pipeline if key.endswith("_poplar_options")]:
            del pipeline[key]
    outfeed = job.program.outfeed
    if outfeed.accumulate_dtype:
        pipeline["accumulate_outfeed_dtype"] = outfeed.accumulate_dtype
    outfeed_options: dict[str, Any] = {"mode": outfeed.mode, "buffer_depth": outfeed.buffer_depth}
    infeed: dict[str, Any] = options.get("infeed", {})
    if not options.get("use_synthetic_data"):
        outfeed_options |= {"element_bytes": outfeed.element_bytes}
        infeed = {**infeed, "element_bytes": job.program.infeed.element_bytes}
    data = {
        **options,
        **sections,
        "outfeed": outfeed_options if outfeed.sent_indices else {},
        "infeed": infeed,
        "pipeline": {**sections["pipeline"], **pipeline},
        "steps": job.steps,
    }
    result = Request.from_dict(runs.plain(data), name=job.request.name, description=description)
    return replace(result, options=Request.from_dict(result.without_defaults()).options)


def _check_time(request: Request, expected: Timeline) -> None:
    """Refuse a request whose Timeline has other spans than the expected Timeline.

    Raises UnsupportedProgramError for other spans, and RequestError for a request that cannot run.
    """
    actual = _step_timeline(assemble(request))
    if not all(np.array_equal(getattr(actual, name), getattr(expected, name)) for name in Span._fields):
        cycles = f"a step takes {actual.end.max():,} cycles, expected {expected.end.max():,}"
        raise UnsupportedProgramError(f"the spans of the run differ: {cycles}")


def _step_timeline(job: Job) -> Timeline:
    """Return the Timeline of one timing-only step."""
    return Session(replace(job, workload=None)).run()


#: Parts of the program that a scenario of stage costs omits.
NOT_SAID: Final = (
    "Not carried over from the program: its arithmetic. Each stage has only its cycles and bytes on this device,",
    "without the memory in use during a pass.",
)
#: Bytes of a stage, under the names that scenarios share with profiles.
_BYTES: Final = (
    "output_bytes",
    "label_bytes",
    "gradient_bytes",
    "parameter_bytes",
    "state_bytes",
    "accumulator_bytes",
    "input_bytes",
    "stash_bytes",
    "rest_bytes",
)


def in_costs(job: Job, functions: StepFunctions) -> dict[str, Any]:
    """Return a scenario's sections with stages given by cycles and bytes."""
    stages = iter(_stages(job, short_names(functions.shown_names)))
    stages_listed = [[next(stages) for _ in range(size)] for size in functions.parts]
    return {
        "pipeline": {
            "stages": [item if len(item) > 1 else item[0] for item in stages_listed],
            "micro_batch_size": job.program.micro_batch_size,
        },
        "training": job.program.shape.training,
    }


def _stages(job: Job, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the keys of every stage; an IPU's weight update belongs to the IPU's first stage."""
    shape, costs = job.program.shape, job.costs
    updates = dict(costs.updates) if shape.training else {}
    result = []
    for number, (name, profile) in enumerate(zip(names, job.program.stages, strict=True)):
        cycles = {"forward": costs.passes[pipelines.Pass.FORWARD, number]}
        if shape.training:
            # The scenario's recomputation option adds this recomputation again.
            recomputed = costs.passes[pipelines.Pass.RECOMPUTE, number] if job.program.recomputes_inside(number) else 0
            cycles["backward"] = costs.passes[pipelines.Pass.BACKWARD, number] - recomputed
            cycles["update"] = updates.pop(shape.mapping[number], 0)
        sizes = {key: value for key in _BYTES if (value := getattr(profile, key))}
        if job.program.offload.weight_update_variables:
            # A scenario counts only bytes of offloaded tensors; small tensors stay on the IPU.
            sizes["state_bytes"] = job.program.offload.state_bytes(profile)
        if shape.training and not profile.accumulator_bytes:
            sizes["accumulator_bytes"] = 0
        result.append({"name": name, **cycles, "input_bytes": profile.input_bytes, **sizes})
    return result
