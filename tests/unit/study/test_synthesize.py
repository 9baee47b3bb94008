"""Parts of synthesis: what words take and hold, what no words can beat, periods, and moves."""

from dataclasses import replace
from random import Random

import networkx as nx
import pytest

from ipusim.api import Request, assemble, execute
from ipusim.app.synthesize.bound import lower_bound
from ipusim.app.synthesize.descent import improve_words
from ipusim.app.synthesize.evaluate import evaluate
from ipusim.app.synthesize.grid import Layout, words_in_time_steps
from ipusim.app.synthesize.in_turns import words_in_turns
from ipusim.app.synthesize.memory import Limits, held_micro_batches, memory_of
from ipusim.app.synthesize.periods import Periodic, letters_of, with_periods
from ipusim.app.synthesize.tasks import BAR, tasks_of, words_of
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.registry import register, temporarily
from ipusim.schedules.words import in_words
from tests.effort import sampled
from tests.schedules import COMPUTING, is_mirrored, mapping_of, multiple_of, takes_even_ipus, trains_only


def stages_of(times, **more):
    return [
        {
            "name": f"s{number}",
            "forward": of[0],
            "backward": sum(of[1:]),
            **({"backward_input": of[1], "backward_weights": of[2]} if len(of) > 2 else {}),
            **{key: value[number] for key, value in more.items()},
        }
        for number, of in enumerate(times)
    ]


def job_of(schedule, times, count, sync="point_to_point", system="free", mapping=None, **more):
    pipeline = {"schedule": schedule, "sync": sync, "gradient_accumulation_count": count}
    pipeline |= {"device_mapping": list(mapping)} if mapping else {}
    options = {"system": {"name": system}, "memory": "off", "pipeline": pipeline | {"stages": stages_of(times, **more)}}
    return assemble(Request.from_dict(options)).whole


def case(schedule, seed, sync, system="free"):
    """Return a Job of stages that differ, its tasks and its words."""
    random = Random(f"{schedule} {seed}")
    ipus = random.randint(2, 4)
    ipus -= ipus % 2 if takes_even_ipus(schedule) else 0
    stages = ipus * (2 if mapping_of(schedule, 8).count(0) > 1 else 1)
    count = multiple_of(schedule, stages, ipus) * random.randint(2, 3)
    times = [[random.randint(20, 200) for _ in range(3)] for _ in range(stages)]
    sizes = {
        "stash_bytes": [random.randint(1, 99) * 1000 for _ in times],
        "rest_bytes": [random.randint(1, 99) * 500 for _ in times],
        "output_bytes": [random.randint(1, 9) * 64 for _ in times],
    }
    mapping = mapping_of(schedule, stages)
    job = job_of(schedule, times, count, sync, system, mapping, **sizes)
    tasks = tasks_of(job)
    return job, tasks, begun(tasks, job.plan.order)


def begun(tasks, order):
    """Return an Order's words, with bars in lock-step."""
    return words_of(tasks, order.passes.tolist()) if tasks.meeting_cycles is None else words_in_time_steps(tasks, order)


#: All of their backward passes are whole, or all in halves, of whole micro-batches, and a stage is there once; words
#: say no others.
ALIKE = [name for name in COMPUTING if name != "dualpipe_v" and not is_mirrored(name)]
#: Their micro-batches go in order.
IN_ORDER = [name for name in ALIKE if name != "breadth_first"]


@sampled(2)
@pytest.mark.parametrize("sync", ["point_to_point", "lock_step"])
@pytest.mark.parametrize("schedule", IN_ORDER)
def test_words_of_a_schedule_take_and_hold_what_its_run_does(schedule, sync):
    job, tasks, words = case(schedule, 0, sync)
    assert evaluate(tasks, words).makespan == execute(job).summary.makespan_cycles
    memory = memory_of(job, tasks, Limits({}))
    held = [memory.peak(*each) for each in enumerate(words)]
    assert all(own <= peak.bytes for own, peak in zip(held, job.memory.peaks, strict=True))
    if sync == "lock_step":  # the words have an order of their own within a time-step
        nothing = tuple(() for _ in words)
        with temporarily():
            count = job.program.shape.micro_batches
            register(in_words("mine", letters_of(Periodic(tasks, words, nothing, nothing, count))))
            job = assemble(job.request.replace({"pipeline.schedule": "mine"})).whole
        assert evaluate(tasks, words).makespan == execute(job).summary.makespan_cycles
    assert held == [peak.bytes for peak in job.memory.peaks]


@pytest.mark.parametrize("seed", range(3))
def test_words_take_the_longest_path_through_their_passes_and_links(seed):
    job, tasks, words = case("zbv", seed, "point_to_point", "m2000")
    graph, sent = nx.DiGraph(), {}
    for word in words:
        seen, before = dict.fromkeys(word, 0), None
        for letter in word:
            node = letter, seen[letter]
            seen[letter] += 1
            graph.add_edge((node, 0), (node, 1), cycles=tasks.cycles[letter])
            for need, away in tasks.needs[letter]:
                graph.add_edge(((need, node[1]), 2 if away else 1), (node, 0), cycles=0)
            if tasks.sends[letter] is not None:
                pair, lead, busy = tasks.sends[letter]
                graph.add_edge((node, 1), (node, "begin"), cycles=lead)
                graph.add_edge((node, "begin"), (node, 2), cycles=busy)
                if pair in sent:
                    graph.add_edge((sent[pair], 2), (node, "begin"), cycles=0)
                sent[pair] = node
            if before:
                graph.add_edge((before, 1), (node, 0), cycles=0)
            before = node
    assert sent
    assert evaluate(tasks, words).makespan == nx.dag_longest_path_length(graph, "cycles")
    assert evaluate(tasks, words).makespan <= execute(job).summary.makespan_cycles


def test_an_ipu_with_a_long_weight_update_ends_ahead():
    job = job_of("zero_bubble_h1", [(90, 80, 70), (80, 90, 60), (70, 60, 90)], 6, update=[3000, 0, 0])
    tasks = tasks_of(job)
    words = words_of(tasks, job.plan.order.passes.tolist())
    steps = iter(range(3000))
    found, cycles = improve_words(memory_of(job, tasks, Limits({})), words, 0, lambda: next(steps, None) is not None)
    assert execute(job).summary.execution_cycles == evaluate(tasks, words).makespan > cycles
    assert cycles >= lower_bound(tasks, 6).cycles > lower_bound(replace(tasks, update_cycles=(0, 0, 0)), 6).cycles
    assert evaluate(tasks, found).ends[tasks.letters_by_word[0][-1]][-1] + 3000 == cycles


def test_words_that_wait_for_each_other_take_no_time_at_all():
    tasks = tasks_of(job_of("1f1b", [(1, 2), (1, 2)], 2))
    forward, back = ([tasks.letters.index((kind, stage)) for stage in (0, 1)] for kind in (0, 1))
    right = ((forward[0], forward[0], back[0], back[0]), (forward[1], back[1]) * 2)
    wrong = ((forward[0], back[0]) * 2, (forward[1], forward[1], back[1], back[1]))
    assert evaluate(tasks, right).makespan == 9
    assert evaluate(tasks, wrong) is None
    assert [tasks.is_ordered(word) for word in (right[0], right[0][::-1])] == [True, False]


@sampled(2)
@pytest.mark.parametrize("sync", ["point_to_point", "lock_step"])
@pytest.mark.parametrize("schedule", ALIKE)
def test_no_schedule_beats_the_bound(schedule, sync):
    job, tasks, _ = case(schedule, 1, sync, "m2000")
    assert lower_bound(tasks, job.plan.shape.micro_batches).cycles <= execute(job).summary.makespan_cycles


def test_copies_in_sequence_round_their_cycles_up_once():
    job = job_of("eager_1f1b", [(1000, 1), (0, 1)], 3, system="bow2000", output_bytes=[75387, 0])
    assert lower_bound(tasks_of(job), 3).cycles <= execute(job).summary.makespan_cycles


@pytest.mark.parametrize("sync", ["point_to_point", "lock_step"])
def test_the_bound_of_very_many_micro_batches_is_hardly_less(sync):
    _, tasks, _ = case("zbv", 4, sync, "m2000")
    apart, together = lower_bound(tasks, 512), lower_bound(tasks, 513)
    busy = max(sum(tasks.cycles[letter] for letter in letters) for letters in tasks.letters_by_word)
    assert 0.999 * (apart.cycles + busy) <= together.cycles <= apart.cycles + 1.01 * busy + (tasks.meeting_cycles or 0)
    assert lower_bound(tasks, 10**6).cycles >= 10**6 * busy


def test_a_bound_says_what_binds():
    tasks = tasks_of(job_of("1f1b", [(10, 20), (90, 180), (10, 20)], 10))
    bound = lower_bound(tasks, 10)
    assert (bound.cycles, bound.name, bound.busy, bound.head, bound.tail) == (2730, "IPU 1", 2700, 10, 20)
    assert bound.words == (
        "IPU 1: 10 cycles before its first pass, 2,700 of work, and at least 20 more for its waits and for the last "
        "passes of other IPUs"
    )
    one = lower_bound(tasks_of(job_of("1f1b", [(10, 20), (10, 20)], 1)), 1)
    assert (one.cycles, one.words) == (60, "the longest path of dependent passes")


@pytest.mark.parametrize("sync", ["point_to_point", "lock_step"])
def test_moves_never_lengthen_words_and_keep_within_the_memory(sync):
    times = [(90, 70, 60), (120, 90, 40), (60, 110, 80), (100, 50, 120)]
    job = job_of("zero_bubble_h1", times, 8, sync, stash_bytes=[100] * 4)
    tasks = tasks_of(job)
    words = begun(tasks, job.plan.order)
    free = memory_of(job, tasks, Limits({}))
    most = {ipu: free.peak(number, words[number]) for number, ipu in enumerate(tasks.ipus)}
    memory = memory_of(job, tasks, Limits(most))
    steps = iter(range(2000))
    found, cycles = improve_words(memory, words, 0, lambda: next(steps, None) is not None)
    assert cycles == evaluate(tasks, found).makespan < evaluate(tasks, words).makespan
    assert all(memory.fits(*each) for each in enumerate(found))
    ran = [
        [sorted(part for letter in word if letter != BAR for part in tasks.parts(*tasks.passes[letter])) for word in of]
        for of in (found, words)
    ]
    assert ran[0] == ran[1]


@sampled(2)
@pytest.mark.parametrize("sync", ["point_to_point", "lock_step"])
@pytest.mark.parametrize("schedule", [name for name in ALIKE if trains_only(name)])
def test_words_with_periods_are_a_schedule_of_every_count_from_theirs_on(schedule, sync):
    job, tasks, words = case(schedule, 3, sync)
    count = job.plan.shape.micro_batches
    memory = memory_of(job, tasks, Limits({}))
    periodic = with_periods(memory, words, count, count, lambda: False)
    made = in_words("mine", letters_of(periodic))
    assert made.least == count
    for more in (0, 1, 7):
        order = made.order(PlanShape(mapping=job.program.shape.mapping, micro_batches=count + more))
        if tasks.meeting_cycles is None:
            assert begun(tasks, order) == periodic.words(count + more)
        else:
            layout = Layout.of_count(tasks, count + more)
            assert layout.steps_of_words(periodic.words(count + more)) == layout.steps_of_order(order)
        outcome = evaluate(tasks, periodic.words(count + more))
        assert lower_bound(tasks, count + more).cycles <= outcome.makespan == periodic.makespan(count + more)
    far = count + 10 * tasks.word_count
    assert periodic.makespan(far) >= evaluate(tasks, periodic.words(far - 1)).makespan


@pytest.mark.parametrize("seed", range(20))
def test_words_made_in_turns_run_and_keep_their_limit_whatever_stages_take(seed):
    random = Random(f"turns {seed}")
    times = [[random.randint(1, 300) for _ in range(3)] for _ in range(random.randint(2, 6))]
    count, ipus = random.randint(1, 12), len(times)
    job = job_of("zero_bubble_h1", times, count)
    tasks = tasks_of(job)
    for most in sorted({1, ipus, 2 * ipus, count}):
        words = words_in_turns(tasks, count, most)
        memory = memory_of(job, tasks, Limits({}, micro_batches=most))
        assert lower_bound(tasks, count).cycles <= evaluate(tasks, words).makespan
        assert all(memory.fits(*each) for each in enumerate(words))
        assert max(held_micro_batches([tasks.passes[letter] for letter in word]) for word in words) <= most
