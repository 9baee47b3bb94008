"""V-Half, V-Min and ZB-V of few micro-batches, against digests of what their authors' own code makes of them."""

import csv
import hashlib

import pytest

from ipusim.analysis.effects import effects_of
from ipusim.schedules.placement import zigzag
from ipusim.schedules.registry import find
from tests.effort import sampled
from tests.oracles.test_house_schedules import EQUAL
from tests.oracles.test_point_to_point import free, most_kept
from tests.scenarios import GOLDEN, run
from tests.schedules import shape_of

with (GOLDEN / "authors_orders.csv").open(newline="") as file:
    #: Schedule, IPUs, and the digest of each count from 1 up: of the rows that create_schedule gives in zbv_greedy.py
    #: and zbv.py of sail-sg/zero-bubble-pipeline-parallelism, commit 39f2c186, where each pass takes a time of 1,
    #: copies none, and a forward pass keeps 2, of which input and weight gradients let go of 1 each.
    ROWS = [(name, int(ipus), digests) for name, ipus, *digests in csv.reader(file)]


def digest_of(name, ipus, count):
    """Return the digest of an Order with its authors' letters and chunks."""
    lines = [[] for _ in range(ipus)]
    for ipu, kind, stage, micro_batch in (
        find(name).order(shape_of(name, zigzag(2 * ipus, 2), count, authors=True)).passes.tolist()
    ):
        lines[ipu].append(f"{'F  BW'[kind]}{int(stage >= ipus)}.{micro_batch}")
    return hashlib.sha256("\n".join(map(" ".join, lines)).encode()).hexdigest()[:12]


@sampled(4)
@pytest.mark.parametrize(("name", "ipus", "digests"), ROWS)
def test_few_micro_batches_run_in_the_order_of_the_authors_code(name, ipus, digests):
    assert [digest_of(name, ipus, count) for count in range(1, len(digests) + 1)] == digests


def test_there_are_digests_of_every_count_that_the_authors_have_another_order_for():
    assert {name for name, _, _ in ROWS} == {"v_half", "v_min", "zbv"}
    for name, ipus, digests in ROWS:
        assert len(digests) == (2 * ipus - 2 if name == "zbv" else ipus + 3)


@sampled(4)
@pytest.mark.parametrize("ipus", range(2, 10))
@pytest.mark.parametrize("name", ["v_half", "v_min", "zbv"])
def test_authors_orders_keep_as_much_and_take_longer_or_shorter_of_few_micro_batches_alone(name, ipus):
    """Where all passes take equally long: those of V-Half and V-Min never shorter, that of ZB-V never longer."""
    mapping, differ = zigzag(2 * ipus, 2), set()
    for count in range(1, 2 * ipus + 2):
        own, authors = (free(name, mapping, count, EQUAL, authors=asked) for asked in (False, True))
        assert own >= authors if name == "zbv" else own <= authors
        kept = [max(most_kept(name, mapping, count, "W", authors=asked)) for asked in (False, True)]
        assert kept[0] == kept[1]
        orders = [find(name).order(shape_of(name, mapping, count, authors=asked)) for asked in (False, True)]
        differ |= {count} if orders[0].passes.tolist() != orders[1].passes.tolist() else set()
    assert differ
    assert max(differ) <= (2 * ipus - 2 if name == "zbv" else ipus + 1)


@pytest.mark.parametrize(("name", "said"), [("zbv", True), ("v_half", True), ("gpipe", False)])
def test_a_run_says_that_its_order_is_the_authors(name, said):
    job = run(name, mapping=(0, 1, 1, 0), count=2, authors_order=True).job
    assert job.program.shape.authors is said
    assert ("order of passes" in effects_of(job.program, job.system)) is said
    assert any("authors_order will have no effect" in note for note in job.notes) is not said
