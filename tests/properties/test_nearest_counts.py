"""Legal counts that a refusal names, held against all counts of a range, each of which is tried."""

import re
from functools import cache, partial
from itertools import islice

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipusim.api import Request, assemble
from ipusim.app.cli.shape import plan_for
from ipusim.base.errors import CountError, ProgramError
from ipusim.runs.problems import RequestError
from ipusim.schedules.registry import HOUSE, find
from tests.effort import share
from tests.schedules import multiple_of

#: Counts that are tried: beyond the second legal one above 20 of any schedule on eight stages.
COUNTS = range(1, 49)
#: The schedules that refuse counts, which are drawn most.
REFUSING = [name for name in sorted(HOUSE) if multiple_of(name, 4, 4) > 1]


@st.composite
def shapes(draw):
    """Return a schedule with stages or a mapping, for training or inference, as the command line has them."""
    stages = draw(st.integers(2, 8))
    ipus = draw(st.sampled_from([divisor for divisor in range(2, stages + 1) if stages % divisor == 0]))
    mappings = [
        None,
        range(stages),
        [stage % ipus for stage in range(stages)],
        [min(stage, stages - 1 - stage) for stage in range(stages)],
        [stage * ipus // stages for stage in range(stages)],
    ]
    mapping = draw(st.sampled_from(mappings))
    words = None if mapping is None else ",".join(map(str, mapping))
    return draw(st.sampled_from([*sorted(HOUSE), *REFUSING * 2])), stages, words, draw(st.booleans())


@cache
def is_legal(shape, count):
    """Return whether a schedule lays a count out; no count where it refuses the mapping."""
    try:
        laid_out(shape, count)
    except ProgramError:
        return False
    return True


def laid_out(shape, count):
    schedule, stages, mapping, inference = shape
    return plan_for(schedule, stages, count, mapping, inference, recompute=False)


def ipus_of(shape):
    """Return the number of IPUs of a shape that is laid out."""
    return len(set(laid_out(shape, None).shape.mapping))


def beside(count, is_legal):
    """Return the next legal counts on either side of one."""
    below = (each for each in reversed(COUNTS) if each < count and is_legal(each))
    above = (each for each in COUNTS if each > count and is_legal(each))
    return [*islice(below, 1), *islice(above, 1)]


@settings(max_examples=share(1500), deadline=None)
@given(shapes(), st.integers(-1, 20))
def test_a_refused_count_is_told_the_next_legal_ones(shape, count):
    legal = partial(is_legal, shape)
    assume(not legal(count) and any(map(legal, COUNTS)))
    with pytest.raises(CountError) as caught:
        laid_out(shape, count)
    named = re.search(r"Nearest legal counts: ([\d or]+)\.$", str(caught.value)).group(1)
    assert [int(each) for each in named.split(" or ")] == beside(count, legal)


@settings(max_examples=share(300), deadline=None)
@given(shapes())
def test_without_a_count_the_smallest_legal_one_is_laid_out(shape):
    whole = find(shape[0]).between  # one in each place of a group, though fewer are legal too
    smallest = next(
        (count for count in COUNTS if is_legal(shape, count) and not (whole and count % ipus_of(shape))), None
    )
    assume(smallest)
    plan = laid_out(shape, None)
    assert plan.shape.micro_batches == smallest * plan.shape.segments


@settings(max_examples=share(600), deadline=None)
@given(
    st.sampled_from(REFUSING),
    st.integers(2, 8),
    st.integers(1, 20),
    st.booleans(),
)
def test_a_scenario_with_a_refused_count_is_told_the_next_legal_ones(schedule, ipus, count, more):
    """Virtual stages and I/O tiles as well, on which the rule of the count depends."""
    virtual = (
        2
        if schedule in ("interleaved_1f1b", "gis", "gis_h", "dualpipe_v") or (schedule == "chimera" and more)
        else None
    )
    overlapped = schedule == "grouped" and more

    def problems(count):
        stages = [{"name": f"s{number}", "forward": 1000, "backward": 2000} for number in range(ipus * (virtual or 1))]
        pipeline = {"schedule": schedule, "gradient_accumulation_count": count, "stages": stages}
        tiles = {"num_io_tiles": 32, "place_ops_on_io_tiles": True} if overlapped else {}
        pipeline |= {} if virtual is None else {"virtual_stages": virtual}
        try:
            assemble(Request.from_dict({"system": {"name": "pod16", "io_tiles": tiles}, "pipeline": pipeline}))
        except RequestError as error:
            return {".".join(map(str, problem.path)): problem.text for problem in error.problems}
        return {}

    found = problems(count)
    assume(list(found) == ["pipeline.gradient_accumulation_count"])
    (text,) = found.values()
    named = re.search(r" The nearest counts of \w+: ([\d or]+)\.$", text).group(1)
    assert [int(each) for each in named.split(" or ")] == beside(count, lambda count: not problems(count))
