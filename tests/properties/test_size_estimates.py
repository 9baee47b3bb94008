"""What a run too large for memory is said to record, at counts around the one from which its Plan is not laid out."""

import contextlib
import re
from itertools import pairwise
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.machine.extent import most_spans
from ipusim.runs.assemble import assemble as road
from ipusim.runs.assemble import limits
from ipusim.runs.assemble import system as systems
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.schedules import registry
from tests.effort import share, slowest

MACHINES = {"free": 16, "m2000": 4, "bow_pod16": 16}


def is_legal(request, count):
    try:
        return bool(assemble(request.replace({"pipeline.gradient_accumulation_count": count})))
    except RequestError:
        return False


@st.composite
def requests(draw):
    """Return a request, of one micro-batch; how many more it takes at once; and counts where its Plan is laid out."""
    schedule = registry.find(draw(st.sampled_from([name for name in registry.names() if name in registry.HOUSE])))
    ipus = 1 if schedule.name == "single" else draw(st.sampled_from([2, 4]))
    machine = draw(st.sampled_from(sorted(MACHINES)))
    sent = {"output_bytes": draw(st.sampled_from([0, 4096]))}
    stages = [{"name": f"s{number}", "forward": 100, "backward": 200, "update": 50, **sent} for number in range(ipus)]
    request = Request.from_dict(
        {
            "name": "drawn",
            "memory": "off",
            "steps": draw(st.integers(1, 2)),
            "system": {"name": machine, "auto_select_ipus": draw(st.sampled_from([ipus, MACHINES[machine]]))},
            "infeed": {"element_bytes": draw(st.sampled_from([0, 1024]))},
            "pipeline": {
                "schedule": schedule.name,
                "repeat_count": draw(st.integers(1, 3)),
                "sync": draw(st.sampled_from(schedule.syncs)).value,
                "gradient_accumulation_count": 64,
                "stages": stages,
            },
        }
    )
    multiple = schedule.multiple(assemble(request).program.shape)
    multiple = next(count for count in range(multiple, 64, multiple) if is_legal(request, count))
    return request, multiple, draw(st.integers(2, 6))


def estimated(request, bytes_of_a_run):
    """Return the spans that a request is refused for; None where it is not."""
    with mock.patch.object(limits, "MAX_RUN_BYTES", bytes_of_a_run):
        try:
            assemble(request)
        except RequestError as error:
            (problem,) = error.problems
            return int(re.search(r"make up to (\d+) spans of the trace; make one", problem.text)[1])
    return None


@contextlib.contextmanager
def whole_runs():
    """Let no run be simulated in part: of such, the spans of the simulated part are what is estimated."""
    with (
        mock.patch.object(road, "short_counts", return_value=iter(())),
        mock.patch.object(systems, "short_counts", return_value=iter(())),
        mock.patch.object(limits, "SIMULATED_EXECUTIONS", 1000),
    ):
        yield


@slowest
@settings(max_examples=share(30))
@given(requests())
@whole_runs()
def test_a_refused_run_is_said_to_record_no_less_than_it_would_and_never_less_at_a_larger_count(drawn):
    """Beyond some count passes alone were counted: 64 x 20,864 came to 4.0 million spans, 64 x 20,992 to 2.7."""
    request, multiple, whole = drawn
    counts = [multiple * times for times in range(1, 2 * whole + 1)]
    jobs = [assemble(request.replace({"pipeline.gradient_accumulation_count": count})) for count in counts]
    passes = jobs[whole - 1].plan.shape.passes
    limit = passes * (limits.SPAN_BYTES + limits.PASS_BYTES)
    said = [estimated(job.request, limit) for job in jobs]
    exact = [most_spans(job.plan, job.system, job.costs, job.executions) for job in jobs]
    assert said[whole:] == [-(-exact[whole - 1] * count // counts[whole - 1]) for count in counts[whole:]]
    assert all(told is None or told == right for told, right in zip(said[:whole], exact, strict=False))
    told = [number for number in said if number is not None]
    assert all(one < other for one, other in pairwise(told))
    for number in (whole - 1, whole, len(jobs) - 1):
        recorded = len(execute(jobs[number]).timeline)
        assert said[number] is None or recorded <= said[number]
    # It is too much by the part of the largest Plan that does not grow with the count, and no more.
    fixed = exact[whole - 1] - (exact[-1] - exact[whole - 1]) * counts[whole - 1] / (counts[-1] - counts[whole - 1])
    assert said[-1] <= exact[-1] + fixed * counts[-1] / counts[whole - 1] + 1
