"""The closed forms of the page of bubbles, at sizes and times that it does not show."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.schedules.registry import names
from ipusim.timeline.time_parts import TimePart
from reports.bubbles_page import FORMS, Case, per_micro_batch, request_of, simulate, with_copies
from tests.effort import draws_everything, runs_slowest, sampled, slowest
from tests.schedules import FREE, multiple_of

TIMES = st.integers(1, 9).map(lambda cycles: 100 * cycles)


@sampled(2)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.schedule)
@settings(max_examples=30 if draws_everything() else 3, deadline=None)
@given(data=st.data())
def test_what_an_ipu_waits_and_keeps_is_what_its_form_says(form, data):
    sizes = st.integers(2, 9) | st.sampled_from([12, 16])
    ipus = data.draw(sizes.map(lambda ipus: ipus - ipus % 2 if form.only_even else ipus))
    multiple = math.lcm(ipus, multiple_of(form.schedule, ipus * form.per_ipu, ipus))
    count = multiple * data.draw(st.integers(2 * ipus // multiple, 4 * ipus // multiple))
    if form.schedule == "interleaved_1f1b":  # as many groups, which may be larger
        groups = count // ipus
        count += groups * data.draw(st.integers(0, (ipus - 1) // groups))
    forward = data.draw(TIMES)
    equal = form.only_equal or data.draw(st.booleans())
    first, second = (forward, forward) if equal else (data.draw(TIMES), data.draw(TIMES))
    case = Case(ipus, count, forward, first, second)
    assume(form.holds(case))
    wait, kept = simulate(case, form.schedule, form.per_ipu)
    assert wait == form.wait(case)
    parts = execute(assemble(request_of(case, form.schedule, form.per_ipu))).summary.waterfall.cycles
    assert parts[TimePart.FILL_AND_DRAIN] + parts[TimePart.GAPS_IN_MAIN] == wait
    if case.equal:
        assert kept == form.kept(case)


def test_every_schedule_of_the_gpu_world_and_grouped_have_their_forms():
    assert {form.schedule for form in FORMS} == {"grouped", *(name for name in names() if name in FREE)}


@sampled(2)
@pytest.mark.parametrize(
    ("schedule", "slack", "copies"),
    [  # with slack the slowest loop is another one from 150 cycles on
        pytest.param(*schedule, copies, marks=() if copies in default else slowest)
        for *schedule, default in (("1f1b", 1, (0, 151, 400)), ("eager_1f1b", 2, (0, 149, 151, 400)))
        for copies in (0, 1, 60, 149, 151, 400)
    ],
)
def test_a_micro_batch_takes_what_the_slowest_loop_of_neighbours_does(schedule, slack, copies):
    for ipus in (2, 3, 5) if runs_slowest() else (2, 5):
        rounds = math.lcm(*(further * slack + 1 for further in range(ipus)))  # whole rounds of any of the loops
        case = Case(ipus, 10, 100, 100, 100)
        longer = case._replace(count=case.count + rounds)
        more = with_copies(longer, schedule, copies) - with_copies(case, schedule, copies)
        assert Fraction(more, rounds) == per_micro_batch(case, copies, slack)
