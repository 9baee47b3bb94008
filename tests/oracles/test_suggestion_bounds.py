"""Bounds of plans: none is above a simulation, for every cut of small models; and how a large model is cut in time."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from ipusim.app.scenario.load import load_request
from ipusim.app.study.full_pipeline import update_cycles
from ipusim.app.study.trial import time_alone, try_request
from ipusim.app.suggest.baseline import baseline_of
from ipusim.app.suggest.budget import Budget, SearchEndedError
from ipusim.app.suggest.choices import Choice
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.search import Search
from ipusim.app.suggest.search_items import CompleteCut, OpenChoice
from ipusim.app.suggest.suggestion import suggest
from ipusim.base.cache import sharing
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.request.request import Request
from tests.effort import sampled, seeds
from tests.scenarios import SCENARIOS


def drawn_model(draw: random.Random) -> Request:
    """Return a small model that begins with layers without weights, whose blocks may end with checkpoints."""
    block = [
        {"name": "up", "type": "dense", "units": draw.choice([16, 256]), "activation": "gelu"},
        {"name": "norm", "type": "layer_norm"},
    ]
    first = [{"name": "drop", "type": "dropout", "rate": 0.1}] * draw.randint(0, 1)
    layers = [{"name": "flat", "type": "flatten"}, *first, {"repeat": draw.randint(2, 3), "layers": block}]
    layers += [{"name": "logits", "type": "dense", "units": 8}, {"name": "loss", "type": "softmax_cross_entropy"}]
    host = {"framework": draw.choice(["popart", "tensorflow2"])}
    on_popart = host["framework"] == "popart"
    names = draw.choice([None, [], ["up0"], ["flat", "norm0"]])
    pipeline: dict[str, Any] = {
        "schedule": draw.choice(["grouped", "interleaved", "1f1b", "gpipe"]),
        "splits": ["logits"],
        "gradient_accumulation_count": 24,
        "micro_batch_size": draw.choice([1, 16]),
        "recomputation_checkpoints": names,
    }
    system: dict[str, Any] = {"name": "m2000", "auto_select_ipus": 4, "host": host, "enable_remote_buffers": True}
    if on_popart:
        system["maximum_cross_replica_sum_buffer_size"] = draw.choice([0, 0, 4096, "all"])
    if draw.random() < 0.4:
        system["matmuls"] = {"poplar_options": {"availableMemoryProportion": draw.choice([0.05, 0.3])}}
    moments = {"first_moment": "float32", "second_moment": "float32"} if on_popart else {}
    return Request.from_dict(
        {
            "system": system,
            "data": {"type": "synthetic", "shape": [64], "classes": 8, "samples": 1024},
            "model": {"layers": layers},
            "pipeline": pipeline,
            "optimizer": {"type": draw.choice(["adam", "lamb"]), "learning_rate": 0.001, **moments},
            "precision": draw.choice(["float16", "float32"]),
            "numerics": "off",
            "memory": "report",
        }
    )


def laid_out(search: Search) -> list[OpenChoice]:
    """Return all choices of a search that are laid out."""
    items: list[OpenChoice] = []

    def keep(_bound: int, item: Choice | OpenChoice | CompleteCut) -> None:
        if isinstance(item, OpenChoice):
            items.append(item)

    search._push = keep  # type: ignore[method-assign]
    for choice in [entry[-1] for heap in search._open.heaps for entry in heap]:
        assert isinstance(choice, Choice)
        search._lay_out(1 << 60, choice)
    return items


@sampled(4)
@pytest.mark.parametrize("seed", seeds(20))
@sharing
def test_no_bound_of_a_plan_is_above_its_simulation(seed: int) -> None:
    draw = random.Random(seed)
    request = drawn_model(draw)
    baseline = baseline_of(request)
    schedules = (request.options.pipeline.schedule,)
    search = Search(baseline, Limits(schedules=schedules, orders=("ZIGZAG",)), most=1000, budget=Budget())
    items = laid_out(search)
    checked = 0
    for item in draw.sample(items, min(len(items), 6)):
        units = item.cutter.units
        cuts = [(0, *inner, len(units)) for inner in combinations(range(1, len(units)), item.choice.stages - 1)]
        memory, pushed = item.cutter.memory, list[OpenChoice]()
        least = int(memory.bytes(np.array(cuts)).min())
        tight = replace(memory, sram_bytes=least)
        assert tight.fullest_bytes(tight.possible_stages(), lambda: None) <= least, item.choice
        cuts = draw.sample(cuts, min(len(cuts), 3))
        search._push = lambda _bound, closer, pushed=pushed: pushed.append(closer)  # type: ignore[method-assign]
        search._look_closer(item)
        bounds = pushed[0].cutter.bounds.with_prices(None, lambda: None, memory.ceiling)
        for cut in cuts:
            choice = replace(item.choice, order="ZIGZAG")
            trial = try_request(request, choice.changes(baseline, units, cut[:-1]))
            if trial.job is None:
                continue
            assert trial.cycles is not None
            table, own = np.array([cut]), memory.of_ipus(np.array([cut]))[:, 0]
            peaks = [peak.bytes for peak in trial.job.memory.peaks]
            assert (own <= peaks).all(), (item.choice, cut)
            tight = replace(memory, sram_bytes=int(own.max()))
            assert tight.possible_stages()[range(item.choice.stages), cut[:-1], cut[1:]].all(), (item.choice, cut)
            assert bounds.least <= trial.cycles, (item.choice, cut)
            assert bounds.cycles(table)[0] <= trial.cycles, (item.choice, cut)
            assert item.bound_under("ZIGZAG", cut) <= trial.cycles, (item.choice, cut)
            tighter = bounds.tighten(trial.cycles + 1)
            before = np.zeros((len(peaks), 1), dtype=np.int64)
            for count in range(1, len(cut)):  # no part of the cut is dropped on the way to it
                part = table[:, : count + 1]
                fits, before = tight.fits(part, tighter.allowed, before)
                assert fits.all(), (item.choice, cut, count)
                assert tighter.may_be_lower(part, trial.cycles + 1).all(), (item.choice, cut, count)
                assert len(tighter.lower(part, trial.cycles + 1)[0]) == 1, (item.choice, cut, count)
            checked += 1
    assert checked, "no plan of the drawn model is accepted: draw others"


@sharing
def test_no_bound_is_above_a_run_whose_replicas_update_parts() -> None:
    """Of PopART's sharded updates, with the state on chip or off: the bounds on the time and on the memory."""
    host = {"host": {"framework": "popart"}, "maximum_cross_replica_sum_buffer_size": "all"}
    layers = [{"name": f"d{number}", "type": "dense", "units": 4096} for number in range(4)]
    request = Request.from_dict(
        {
            "system": {"name": "pod16", "auto_select_ipus": 8, **host},
            "data": {"type": "synthetic", "shape": [4096], "classes": 4, "samples": 64},
            "model": {"layers": [*layers, {"name": "loss", "type": "softmax_cross_entropy"}]},
            "pipeline": {"splits": ["d2"], "micro_batch_size": 4, "gradient_accumulation_count": 8},
            "optimizer": {"type": "lamb", "learning_rate": 0.1},
            "numerics": "off",
            "memory": "report",
            "code_bytes": 0,
        }
    )
    limits = Limits(
        replicas=(2, 4), stages=(2,), schedules=("grouped",), sharding=("yes",), recompute=("no",), orders=("ZIGZAG",)
    )
    baseline, seen = baseline_of(request), set()
    for item in laid_out(Search(baseline, limits, most=1, budget=Budget())):
        units, cut, choice = item.cutter.units, (0, 2, len(item.cutter.units)), replace(item.choice, order="ZIGZAG")
        job = assemble(time_alone(request, choice.changes(baseline, units, cut[:-1])))
        offload = job.program.offload
        assert offload.sharded_update
        assert item.bound_under("ZIGZAG", cut) <= update_cycles(job)
        if not offload.weight_update_variables:  # which takes streams too
            assert 0 < item.cutter.bounds._updates[0, 2] <= job.costs.updates[choice.mapping[0]]
        assert item.cutter.memory.bytes(np.array([cut]))[0] <= job.memory.fullest.bytes
        seen.add((choice.replicas, offload.weight_update_variables))
    assert seen == {(2, False), (2, True), (4, False), (4, True)}


def deep_gpt() -> Request:
    """Return a GPT of 24 blocks on 16 IPUs, whose stages can be cut in trillions of ways."""
    block = "model.layers.2.layers"
    widths = {"model.layers.tokens.output_dim": 1024, f"{block}.attention.layers.heads.num_heads": 16}
    widths |= {f"{block}.feedforward.layers.{name}.units": units for name, units in (("up", 4096), ("down", 1024))}
    words = ("data.vocabulary", "model.layers.tokens.input_dim", "model.layers.logits.units")
    products = {"system.matmuls": {"poplar_options": {"availableMemoryProportion": 0.3}}}
    splits = [f"attention{number}" for number in range(3, 24, 3)]
    return load_request(SCENARIOS / "transformer_eight_ipus.yaml").replace(
        {
            **{"system.auto_select_ipus": 16, "numerics": "off", "memory": "report", "precision": "float16"},
            **{"data.length": 512, "model.layers.2.repeat": 24, **widths, **dict.fromkeys(words, 50304), **products},
            **{"pipeline.splits": splits, "pipeline.micro_batch_size": 1, "pipeline.gradient_accumulation_count": 32},
        }
    )


DEEP = Limits(ipus=(16,), replicas=(1,), stages=(8, 16), schedules=("grouped",), recompute=("yes",), orders=("ZIGZAG",))


def test_a_wide_search_is_no_worse_than_its_parts_after_as_much_work() -> None:
    """Two replicas have the lower bounds: the cuts of their plans alone would take all of the work."""
    request, work = deep_gpt(), 20_000
    narrow, wide = (
        suggest(request, limits, budget=Budget(work=work), runners_up=0).searched
        for limits in (DEEP, replace(DEEP, replicas=(1, 2)))
    )
    assert (narrow.end_reason, wide.end_reason) == (f"the limit of {work} bounded cuts",) * 2
    assert narrow.best is not None
    assert wide.best is not None
    assert wide.best <= narrow.best
    assert wide.bounded > work  # cuts of attempts at good plans are counted too


@sharing
def test_few_cuts_are_bounded_between_two_looks_at_the_clock() -> None:
    works: list[int] = []

    def spend(work: int) -> None:
        works.append(work)
        if sum(works) > 60_000:
            raise SearchEndedError

    (item, *_) = laid_out(Search(baseline_of(deep_gpt()), DEEP, most=1, budget=Budget()))
    cutter = item.cutter
    with pytest.raises(SearchEndedError):
        cutter.cuts_below(4 * cutter.bounds.least, 5000, spend)
    assert max(works) < 50_000
