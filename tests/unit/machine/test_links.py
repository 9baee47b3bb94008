"""IPU-Links under sends: who gets what share, from when, to the cycle, by hand; and what their spans say."""

import random
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise

import pytest

from ipusim.hardware.build import build_system
from ipusim.lowering.lower import lower
from ipusim.machine.clock import Clock
from ipusim.machine.flows import Tensor
from ipusim.machine.links import Links
from ipusim.model.profile import StageProfile
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Recorder
from ipusim.timeline.timeline import NONE
from tests.effort import seeds, share
from tests.orders import random_mapping, random_order
from tests.plans import price_and_run
from tests.unit.timeline.test_timeline import INFO


def spans_of(timeline):
    """The spans of links: (link, bytes, start, end)."""
    columns = (timeline.link, timeline.bytes, timeline.start, timeline.end)
    rows = timeline.rows(SpanKind.LINK)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


def carried(rates, *sends):
    """When each of ``sends``, (handed over at, lead, bytes, links), has come; and the spans of the links."""
    clock, recorder = Clock(), Recorder(1)
    links = Links(clock, recorder, [Fraction(rate) for rate in rates], [f"link {each}" for each in range(len(rates))])
    found = {}

    def one(number, at, lead, size, route):
        yield clock.event_at(at)
        done = clock.event()
        cycles = -(-Fraction(size) // min(Fraction(rates[link]) for link in route)) if route else 0
        send = Send(size, lead, tuple(route), int(cycles))
        links.carry(Tensor(number, send, 0, NONE, clock.now, lambda _, cycle: done.succeed(cycle)), ())
        yield done
        found[number] = clock.now

    assert clock.run_all([clock.process(one(number, *send)) for number, send in enumerate(sends)])
    assert all(not each for each in links.state())
    return [found[number] for number in range(len(sends))], spans_of(recorder.timeline(INFO))


def test_a_send_of_no_bytes_on_no_link_takes_its_lead_alone():
    assert carried([4], (0, 7, 0, [])) == ([7], [])


def test_a_link_has_one_span_for_as_long_as_anything_moves_on_it():
    _, spans = carried([4, 4], (0, 0, 40, [0]), (5, 0, 40, [0]), (30, 0, 8, [0]), (5, 0, 4, [1]))
    assert sorted(spans) == [(0, 8, 30, 32), (0, 80, 0, 20), (1, 4, 5, 6)]


def test_any_sends_take_as_long_as_all_rates_found_anew_say():
    """Against rates that rise together until a link is full, found anew in every cycle in which anything changes."""
    rng = random.Random(5)
    for turn in range(share(400)):
        far = 9 if turn % 2 else 60  # a lead, which may end long behind what moves when it begins
        rates = [Fraction(rng.randint(1, 9), rng.randint(1, 3)) for _ in range(4)]
        sends = [
            (rng.randint(0, 30), rng.randint(0, far), rng.randint(1, 90), rng.sample(range(4), rng.randint(1, 3)))
            for _ in range(rng.randint(2, 7))
        ]
        found, spans = carried(rates, *sends)
        assert found == filled(rates, sends)
        check_spans(spans, Counter((link, size) for _, _, size, route in sends for link in route))


def filled(rates, sends):
    left = {number: Fraction(size) for number, (_, _, size, _) in enumerate(sends)}
    ends, now = {}, 0
    while left:
        moving = [number for number in left if sends[number][0] + sends[number][1] <= now]
        speed, rising = dict.fromkeys(moving, Fraction(0)), set(moving)
        while rising:
            steps = {}
            for link, rate in enumerate(rates):
                on = [number for number in moving if link in sends[number][3]]
                if rising & set(on):
                    steps[link] = (rate - sum(speed[number] for number in on)) / len(rising & set(on))
            least = min(steps.values())
            full = {link for link, step in steps.items() if step == least}
            for number in rising:
                speed[number] += least
            rising = {number for number in rising if not full & set(sends[number][3])}
        now += 1
        for number in moving:
            left[number] -= speed[number]
            if left[number] <= 0:
                del left[number]
                ends[number] = now
    return [ends[number] for number in range(len(sends))]


def check_spans(spans, sent):
    """Spans of one link never overlap, and together they carry what was sent."""
    of_link = defaultdict(list)
    for link, size, start, end in spans:
        of_link[link].append((start, end, size))
    for own in of_link.values():
        own.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(own))
    total = Counter()
    for (link, size), times in sent.items():
        total[link] += size * times
    assert {link: sum(size for *_, size in own) for link, own in of_link.items()} == dict(total)


@pytest.mark.parametrize("seed", seeds(6))
def test_links_of_a_run_carry_what_was_sent_one_span_at_a_time(seed):
    rng = random.Random(seed)
    shape = PlanShape(mapping=random_mapping(rng, 6, 4), micro_batches=5)
    profiles = tuple(
        StageProfile(f"s{index}", rng.randint(1, 999), rng.randint(1, 999), 0, output_bytes=size, gradient_bytes=size)
        for index, size in enumerate(rng.choices((0, 100, 90_000), k=6))
    )
    system = build_system("m2000", mapping=(*shape.mapping, 3), selection_order="HOOF")
    program = PipelineProgram(profiles, shape, repeat_count=2)
    timeline = price_and_run(lower(random_order(rng, shape), Sync.POINT_TO_POINT), program, system)
    names = [str(label) for label in timeline.info.links]
    sent = Counter()
    for source, target in ((stage, stage + step) for stage in range(6) for step in (1, -1)):
        if 0 <= target < 6 and shape.mapping[source] != shape.mapping[target] and profiles[source].output_bytes:
            for direction in system.route(shape.mapping[source], shape.mapping[target]):
                sent[names.index(direction.label), profiles[source].output_bytes] += 2 * shape.micro_batches
    check_spans(spans_of(timeline), sent)
