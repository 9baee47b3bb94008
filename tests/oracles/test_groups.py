"""Groups of micro-batches: interleaved 1F1B as torch and Megatron-LM have it, and GIS and GIS-H by their forms."""

import csv
import hashlib
import random

import pytest

from ipusim.base.errors import CountError, UnsupportedProgramError
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.plans import nearest_counts
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.schedules.registry import find
from tests.effort import draws_everything, sampled
from tests.scenarios import GOLDEN

with (GOLDEN / "interleaved_digests.csv").open(newline="") as file:
    #: By ranks and stages of a rank the digest of each count that torch 2.13.0 has: of ScheduleInterleaved1F1B's passes
    #: of each rank in a line, as its _calculate_single_rank_operations gives them.
    DIGESTS = {(int(row[0]), int(row[1])): dict(cell.split(":") for cell in row[2:]) for row in csv.reader(file)}
COUNTS = range(1, 41)


def shape_of(ipus, chunks, count, size=0):
    return PlanShape(mapping=(*range(ipus),) * chunks, micro_batches=count, group_size=size)


def words_of(order, ipus):
    """Return of each IPU its passes as torch writes them."""
    words = [[] for _ in range(ipus)]
    for ipu, kind, stage, micro_batch in order.passes.tolist():
        words[ipu].append(f"{stage}{'FB'[kind]}{micro_batch}")
    return words


@sampled(4)
@pytest.mark.parametrize("ipus", range(2, 17))
def test_each_count_that_torch_has_is_laid_out_as_torch_does_and_no_other(ipus):
    """Of ranks 2 to 16, 2 to 8 stages of a rank and counts up to 40, by default every other one in turn."""
    schedule = find("interleaved_1f1b")
    for chunks in range(2, 9):
        torchs = DIGESTS[ipus, chunks]
        assert [int(count) for count in torchs] == [n for n in COUNTS if n % max(1, n // ipus) == 0]
        for count in COUNTS:
            if (ipus + chunks + count) % 2 and not draws_everything():
                continue
            shape = shape_of(ipus, chunks, count)
            if str(count) in torchs:
                text = "\n".join(map(" ".join, words_of(schedule.lay_out(shape), ipus)))
                assert hashlib.sha256(text.encode()).hexdigest()[:12] == torchs[str(count)]
            else:
                with pytest.raises(CountError):
                    schedule.order(shape)
                below = max(int(each) for each in torchs if int(each) < count)
                above = next(n for n in range(count, 2 * count) if n % (n // ipus) == 0)
                assert chunks > 2 or nearest_counts(schedule, shape) == (below, above)


def megatron_has(ipus, count, size):
    """Whether Megatron-LM runs it: ``size`` from its ranks to the count, and what is left over none or as many."""
    return ipus <= size <= count and not 0 < count % size < ipus


def megatrons(rank, ipus, chunks, count, size):
    """Return the passes of a rank, as Megatron-LM's documentation of microbatch_group_size_per_vp_stage says.

    A table has the micro-batches of a group, chunk by chunk, before those of the next. Forward passes go down it, and
    backward passes too, with the last chunk for the first. A rank runs 2 (ranks - rank - 1) + (chunks - 1) size forward
    passes, or all, then a forward and a backward pass in turn, then what is left.
    """
    table = []
    for first in range(0, count, size):
        table += [(chunk, first + n) for chunk in range(chunks) for n in range(size) if first + n < count]
    forward = [f"{chunk * ipus + rank}F{n}" for chunk, n in table]
    backward = [f"{(chunks - 1 - chunk) * ipus + rank}B{n}" for chunk, n in table]
    warm_up = min(len(table), 2 * (ipus - rank - 1) + (chunks - 1) * size)
    pairs = [*zip(forward[warm_up:], backward[: len(table) - warm_up], strict=True)]
    return [*forward[:warm_up], *(one for pair in pairs for one in pair), *backward[len(pairs) :]]


def test_megatrons_tables_are_those_that_it_documents():
    """Two ranks of two chunks: groups of three, five micro-batches, and groups of two, four."""
    for count, size, right in ((5, 3, "0 1 2 0 1 2 3 4 3 4"), (4, 2, "0 1 0 1 2 3 2 3")):
        (forward, _) = words_of(find("interleaved_1f1b").order(shape_of(2, 2, count, size)), 2)
        assert " ".join(word.split("F")[1] for word in forward if "F" in word) == right
    stages = [word.split("F")[0] for word in megatrons(0, 2, 2, 5, 3) if "F" in word]
    assert " ".join(stages) == "0 0 0 2 2 2 0 0 2 2"


@sampled(4)
@pytest.mark.parametrize("ipus", range(2, 17))
def test_groups_of_any_size_are_laid_out_as_megatron_does(ipus):
    rng, schedule = random.Random(ipus), find("interleaved_1f1b")
    for chunks in range(2, 9):
        for count in COUNTS:
            for size in rng.sample(range(1, 42), 3 if draws_everything() else 1):
                shape = shape_of(ipus, chunks, count, size)
                if megatron_has(ipus, count, size):
                    right = [megatrons(rank, ipus, chunks, count, size) for rank in range(ipus)]
                    assert words_of(schedule.lay_out(shape), ipus) == right
                else:
                    with pytest.raises(UnsupportedProgramError if size < ipus else CountError):
                        schedule.order(shape)


def test_a_group_that_is_too_small_is_refused_at_its_key_and_without_effect_elsewhere():
    stages = [{"name": f"s{number}", "forward": 100, "backward": 200} for number in range(8)]
    pipeline = {"schedule": "interleaved_1f1b", "virtual_stages": 2, "stages": stages, "micro_batch_group_size": 3}
    asked = {"system": {"name": "free"}, "pipeline": {**pipeline, "gradient_accumulation_count": 9}}
    with pytest.raises(RequestError, match="groups with at least one micro-batch for each IPU, 4") as caught:
        assemble(Request.from_dict(asked, name="groups"))
    assert [problem.path for problem in caught.value.problems] == [("pipeline", "micro_batch_group_size")]
    asked["pipeline"] |= {"micro_batch_group_size": 5}
    assert assemble(Request.from_dict(asked, name="groups")).program.shape.group_size == 5
    asked["pipeline"] |= {"schedule": "gis", "gradient_accumulation_count": 8, "authors_order": True}
    notes = " ".join(assemble(Request.from_dict(asked, name="groups")).notes)
    assert "micro_batch_group_size will have no effect since gis" in notes
    assert "authors_order will have no effect since gis" in notes
