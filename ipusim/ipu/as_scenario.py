"""What a program asked for as a scenario, which takes the same time to the cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipusim.errors import IpusimError
from ipusim.ipu import as_costs, as_layers
from ipusim.ipu.functions import TracedFunctions
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request, plain
from ipusim.runs.session import Session
from ipusim.timeline.timeline import Span, Timeline

#: Options that a program's feeds and functions say instead.
_SAID_ELSEWHERE = ("outfeed_mask", "accumulate_outfeed_dtype")


@dataclass(frozen=True)
class Said:
    """A program as a scenario.

    Attributes:
        request: what the scenario asks for.
        comments: what it does not say of the program, in lines.
    """

    request: Request
    comments: tuple[str, ...]


def as_scenario(job: Job, description: str = "") -> Said | None:
    """Return the scenario of a program: of its layers where stages do nothing else, else of what its stages cost.

    None where neither takes the time that the program takes.
    """
    functions = job.request.functions
    if not isinstance(functions, TracedFunctions):
        return None
    want = _time_alone(job)
    why = ""
    try:
        said = as_layers.in_layers(job, functions)
        if (found := _request(job, said, description, functions)) is not None and _takes(found, want):
            return Said(found, as_layers.NOT_SAID)
        why = "its layers alone take another time"
    except IpusimError as error:
        why = str(error)
    found = _request(job, as_costs.in_costs(job, functions.parts), description, functions)
    if found is None or not _takes(found, want):
        return None
    return Said(found, (*as_costs.NOT_SAID, f"It is no scenario of layers: {why}."))


def _request(job: Job, said: Mapping[str, Any], description: str, functions: TracedFunctions) -> Request | None:
    """Return the request of a scenario, with ``said`` about its stages; None where it is refused."""
    options = job.request.without_defaults()
    counted = "model" in said
    pipeline = dict(options.get("pipeline", {}))
    if not counted:
        for key in [key for key in pipeline if key.endswith("_poplar_options")]:
            del pipeline[key]
    arguments, outfeed = functions.arguments, job.program.outfeed
    if outfeed.accumulate and outfeed.accumulate_dtype:
        pipeline["accumulate_outfeed_dtype"] = outfeed.accumulate_dtype
    feeds: dict[str, Any] = {}
    if arguments.outfeed is not None:
        feeds["outfeed"] = {"mode": outfeed.mode, "buffer_depth": outfeed.buffer_depth}
    if not options.get("use_synthetic_data"):
        feeds["outfeed"] = {**feeds.get("outfeed", {}), "element_bytes": outfeed.element_bytes}
        feeds["infeed"] = {**options.get("infeed", {}), "element_bytes": job.program.infeed.element_bytes}
    data = {**options, **said, **feeds, "pipeline": {**said["pipeline"], **pipeline}, "steps": job.steps}
    try:
        found = Request.from_dict(plain(data), name=job.request.name, description=description)
        return replace(found, options=Request.from_dict(found.without_defaults()).options)
    except IpusimError:
        return None


def _takes(request: Request, want: Timeline) -> bool:
    """Tell whether a request takes the time that is wanted, span by span."""
    try:
        got = _time_alone(assemble(request))
    except IpusimError:
        return False
    return all(np.array_equal(getattr(got, name), getattr(want, name)) for name in Span._fields)


def _time_alone(job: Job) -> Timeline:
    """Return the Timeline of one step without arithmetic."""
    return Session(replace(job, workload=None)).run()
