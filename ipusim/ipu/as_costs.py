"""The stages of a program by what they cost, in the keys of a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ipusim.ipu.functions import TracedFunctions
from ipusim.ipu.scope_names import short_names
from ipusim.pipeline.ops import Pass
from ipusim.runs.job import Job

#: What stays with the program, in a scenario of what its stages cost.
NOT_SAID: Final = (
    "Not carried over from the program: its arithmetic. Each stage is known by its cycles and bytes alone, as they are",
    "for this device; what lies in memory while a pass runs is not among them.",
)
#: The bytes of a stage, which a scenario calls as a profile does.
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


def in_costs(job: Job, parts: Sequence[int]) -> dict[str, Any]:
    """Return the sections of a scenario that say what is executed: ``parts`` stages run at each position."""
    stages = iter(_stages(job))
    listed = [[next(stages) for _ in range(size)] for size in parts]
    return {
        "pipeline": {
            "stages": [each if len(each) > 1 else each[0] for each in listed],
            "micro_batch_size": job.program.micro_batch_size,
        },
        "training": job.program.shape.training,
    }


def _stages(job: Job) -> list[dict[str, Any]]:
    """Return each stage; the weight update of an IPU is that of its first."""
    shape, costs = job.program.shape, job.costs
    functions = job.request.functions
    assert isinstance(functions, TracedFunctions)
    names = short_names(functions.shown_names)
    updates = dict(costs.updates) if shape.training else {}
    found = []
    for number, (name, profile) in enumerate(zip(names, job.program.stages, strict=True)):
        cycles = {"forward": costs.passes[Pass.FORWARD, number]}
        if shape.training:
            # What is computed again inside of it comes with the option once more.
            again = costs.passes[Pass.RECOMPUTE, number] if job.program.recomputes_inside(number) else 0
            cycles["backward"] = costs.passes[Pass.BACKWARD, number] - again
            cycles["update"] = updates.pop(shape.mapping[number], 0)
        held = {key: value for key in _BYTES if (value := getattr(profile, key))}
        if (
            job.program.offload.weight_update_variables
        ):  # tensors that are too small for it stay, and are not told apart
            held["state_bytes"] = job.program.offload.state_bytes(profile)
        if shape.training and not profile.accumulator_bytes:
            held["accumulator_bytes"] = 0
        found.append({"name": name, **cycles, "input_bytes": profile.input_bytes, **held})
    return found
