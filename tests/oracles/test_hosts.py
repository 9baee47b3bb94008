"""Several hosts, each with a device: what they learn together, and what it takes them."""

from fractions import Fraction
from math import ceil

import pytest

from ipusim.analysis.idle_spans import CAUSES
from ipusim.app.render.tables import summary_table
from ipusim.app.render.verdict import verdict_table
from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.machine.executor import NullExecutor, Replicas
from ipusim.machine.hosts import run_together, this_host
from ipusim.machine.simulate import simulate
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import Idle
from tests.oracles.test_offload import LAYERS
from tests.run_checks import check_explained

SYSTEM = """\
system:
  name: m2000
  clock: 1 GHz
  auto_select_ipus: 2
  host: {count: 3, infeed: 2 GB/s, outfeed: 1 GB/s, network: 4 GB/s}
"""
TEXT = SYSTEM + LAYERS.partition("}\n")[2]
#: Weights of each stage, in bytes.
FIRST, SECOND = (6 + 1) * 40 * 4, ((40 + 1) * 30 + (30 + 1) * 3) * 4


@pytest.mark.parametrize("change", ["sum_over=network", "sum_over=links"])
def test_several_hosts_take_no_time_on_the_free_system_and_learn_the_same(load, change):
    free = "system={name: free, auto_select_ipus: 2, host: {count: 3}}"
    hosts, same = execute(load(TEXT, free, f"system.host.{change}")), execute(load(TEXT))
    assert [each.loss for each in hosts.learning.losses] == [each.loss for each in same.learning.losses]
    alone = execute(load(TEXT, free, "system.host.count=1"))
    assert hosts.timeline.makespan_cycles == alone.timeline.makespan_cycles
    with pytest.raises(ScenarioError, match=r"system.host.network: expected no cost on the free system"):
        load(TEXT, free, "system.host.network=1 GB/s")


@pytest.mark.parametrize("way", ["network", "links"])
def test_who_waits_for_a_slower_host_waits_for_the_sum_and_is_explained(load, way):
    """The other host is ready 50,000 cycles later, each time; the sum over hosts is of the weight update."""
    job = load(TEXT, f"system.host.sum_over={way}", "system.host.count=2", "numerics=off")
    even, late = (
        simulate(
            job.plan,
            job.program,
            job.system,
            costs=job.costs,
            executor=Replicas((NullExecutor(),), sum_over_hosts=lambda ready, more=more: ready + more),
        )
        for more in (0, 50_000)
    )
    assert late.makespan_cycles - even.makespan_cycles == 3 * 50_000
    waited = [check_explained(each).cycles[:, CAUSES.index(Idle.UPDATE)] for each in (even, late)]
    assert (waited[1] - waited[0] == 3 * 50_000).all()


def test_the_sum_takes_the_copies_to_the_host_and_back_and_a_ring_between_hosts(load):
    """At 1 GHz a GB/s is a byte a cycle; 10 us of the network's latency are 10,000 cycles."""
    run = execute(load(TEXT))
    timeline, most = run.timeline, max(FIRST, SECOND)
    ring = 2 * 2 * (10_000 + ceil(Fraction(ceil((FIRST + SECOND) / 3), 4)))
    times = [
        (int(timeline.end[row] - timeline.start[row]))
        for row in timeline.rows(SpanKind.HOST_SUM)
        if timeline.ipu[row] == timeline.ipu[timeline.rows(SpanKind.HOST_SUM)][0]
    ]
    assert times[:2] == [most, ceil(most / 2)]
    network = [row for row in timeline.rows(SpanKind.HOST) if timeline.link[row] == 3]
    assert {int(timeline.end[row] - timeline.start[row]) for row in network} == {ring}
    assert len(network) == 3
    alone = execute(load(TEXT, "system.host.count=1"))
    longer = most + ring + ceil(most / 2)
    assert run.summary.weight_update_cycles - alone.summary.weight_update_cycles == longer
    assert run.summary.throughput.effective_batch_size == 3 * alone.summary.throughput.effective_batch_size


def test_tables_say_how_many_hosts_there_are(load):
    summary = execute(load(TEXT)).summary
    assert summary.hosts == 3
    assert ("time per weight update", "3 samples x 4 micro-batches x 3 hosts") in [
        (name, text.partition(" for ")[2]) for name, text in verdict_table(summary).rows
    ]
    assert ("effective batch size", "3 x 4 x 3 = 36 samples") in summary_table(summary).rows


def test_inference_sums_nothing_up(load):
    run = execute(load(TEXT, "optimizer=null", "training=false"))
    assert not len(run.timeline.rows(SpanKind.HOST_SUM))


def test_hosts_take_turns_in_the_order_of_their_ranks():
    order = []

    def on_host(brings):
        def run():
            order.append(("begins", this_host().rank))
            found = this_host().exchange("sum", brings)
            order.append(("goes on", this_host().rank))
            return sum(found)

        return run

    assert run_together([on_host(brings) for brings in (1, 20, 300)]) == [321] * 3
    assert order == [(what, rank) for what in ("begins", "goes on") for rank in range(3)]
    assert this_host() is None


def test_hosts_that_do_not_wait_for_the_same():
    def wait(what):
        return this_host().exchange(what, None)

    with pytest.raises(ProgramStateError, match=r"^host 0 waits for all hosts in a sum, but host 1 has ended$"):
        run_together([lambda: wait("a sum"), lambda: None])
    with pytest.raises(ProgramStateError, match=r"^host 0 waits for all hosts in a sum, but host 1 in a gather$"):
        run_together([lambda: wait("a sum"), lambda: wait("a gather")])
    with pytest.raises(ProgramError, match=r"^expected hosts started by one outer process"):
        run_together([lambda: run_together([lambda: None])])


def test_an_error_of_one_host_ends_all():
    ended = []

    def waits():
        try:
            this_host().exchange("a sum", None)
        finally:
            ended.append(this_host().rank)

    def fails():
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        run_together([waits, fails])
    assert ended == [0]
