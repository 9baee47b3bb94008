"""What a program asked for as a scenario, which takes the same time to the cycle."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ipusim.errors import IpusimError, UnsupportedProgramError
from ipusim.ipu import as_costs, as_layers
from ipusim.ipu.functions import TracedFunctions
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request, plain
from ipusim.runs.session import Session
from ipusim.timeline.timeline import Span, Timeline

#: Characters of a line of comment.
_LINE: Final = 110


@dataclass(frozen=True)
class Said:
    """A program as a scenario.

    Attributes:
        request: what the scenario asks for.
        comments: what it does not say of the program, in lines.
    """

    request: Request
    comments: tuple[str, ...]


def as_scenario(job: Job, description: str = "") -> Said:
    """Return the scenario of a program: of its layers where stages do nothing else, else of what its stages cost.

    Raises UnsupportedProgramError where neither takes the time that the program takes, and for stages that call
    collectives, look up rows on the host or have it compute.
    """
    functions = job.request.functions
    assert isinstance(functions, TracedFunctions)
    _refuse_what_scenarios_do_not_say(job)
    if job.between:
        raise UnsupportedProgramError(
            f"no scenario takes the time that the program {job.name!r} takes: its hosts do something together "
            "between its session runs"
        )
    want = _time_alone(job)
    try:
        found = _request(job, as_layers.in_layers(job, functions), description, functions)
        _check_time(found, want)
        return Said(found, as_layers.NOT_SAID)
    except IpusimError as error:
        why = str(error)
    try:
        found = _request(job, as_costs.in_costs(job, functions.parts), description, functions)
        _check_time(found, want)
    except IpusimError as error:
        raise UnsupportedProgramError(
            f"no scenario takes the time that the program {job.name!r} takes; of its layers: {why}; of what its stages "
            f"cost: {error}"
        ) from None
    return Said(found, (*as_costs.NOT_SAID, *textwrap.wrap(f"It is no scenario of layers: {why}.", _LINE)))


def _refuse_what_scenarios_do_not_say(job: Job) -> None:
    """Refuse what no key says: stages whose replicas do something together, and what stages and the host exchange."""
    stages = job.program.stages
    what = [f"replicas call {calls[0].call} in {stages[at].name}" for (_, at), calls in job.costs.collectives.items()]
    what += ["its host waits for slower ones"] if job.late else []
    what += ["the host applies gradients"] if not job.program.sums_over_hosts else []
    what += [f"{stages[at].name} looks up rows in tables on the host" for at in job.costs.tables]
    what += [
        f"{stages[at].name} has the host compute {calls[0].call.name!r}" for (_, at), calls in job.costs.outside.items()
    ]
    if what:
        raise UnsupportedProgramError(
            f"no scenario takes the time that the program {job.name!r} takes: {what[0]}, which a scenario does not say"
        )


def _request(job: Job, said: Mapping[str, Any], description: str, functions: TracedFunctions) -> Request:
    """Return the request of a scenario, with ``said`` about its stages; raises RequestError where it is refused."""
    options = job.request.without_defaults()
    pipeline = dict(options.get("pipeline", {}))
    if "model" not in said:
        for key in [key for key in pipeline if key.endswith("_poplar_options")]:
            del pipeline[key]
    outfeed = job.program.outfeed
    if outfeed.accumulate_dtype:
        pipeline["accumulate_outfeed_dtype"] = outfeed.accumulate_dtype
    sent: dict[str, Any] = {"mode": outfeed.mode, "buffer_depth": outfeed.buffer_depth}
    taken: dict[str, Any] = options.get("infeed", {})
    if not options.get("use_synthetic_data"):
        sent |= {"element_bytes": outfeed.element_bytes}
        taken = {**taken, "element_bytes": job.program.infeed.element_bytes}
    data = {
        **options,
        **said,
        "outfeed": sent if functions.arguments.outfeed is not None else {},
        "infeed": taken,
        "pipeline": {**said["pipeline"], **pipeline},
        "steps": job.steps,
    }
    found = Request.from_dict(plain(data), name=job.request.name, description=description)
    return replace(found, options=Request.from_dict(found.without_defaults()).options)


def _check_time(request: Request, want: Timeline) -> None:
    """Refuse a request that takes another time than is wanted, span by span.

    Raises UnsupportedProgramError, and as ``assemble`` does.
    """
    got = _time_alone(assemble(request))
    if not all(np.array_equal(getattr(got, name), getattr(want, name)) for name in Span._fields):
        cycles = f"{got.end.max():,} cycles a step and not {want.end.max():,}"
        raise UnsupportedProgramError(f"they take {cycles}, or the same in another way")


def _time_alone(job: Job) -> Timeline:
    """Return the Timeline of one step without arithmetic."""
    return Session(replace(job, workload=None)).run()
