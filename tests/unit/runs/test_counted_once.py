"""What is worked out once: what cuts of a model have in common, and the check of a house's schedule."""

import pytest

from ipusim.api import pricing
from ipusim.app.scenario.load import load_request
from ipusim.app.suggest import together
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.suggestion import suggest
from ipusim.base.cache import Cache
from ipusim.base.errors import PlanError
from ipusim.model.stages import layer_profile as profiles
from ipusim.runs.assemble import program
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.request.request import Request
from tests.scenarios import SCENARIOS

LAYERS = ["pipeline.gradient_accumulation_count=6", "system.auto_select_ipus=4", "numerics=off", "memory=report"]


def _cut(splits, **more):
    changes = [f"pipeline.splits=[{splits}]", *LAYERS, *(f"{name}={value}" for name, value in more.items())]
    return load_request(SCENARIOS / "digits_training.yaml", changes)


def test_a_stage_that_two_cuts_have_in_common_is_counted_once(monkeypatch):
    counted = []

    def noted(stage, *arguments):
        counted.append(stage.layers)
        return profiles.layer_profile(stage, *arguments)

    monkeypatch.setattr(program, "layer_profile", noted)
    cache = Cache()
    with cache.activate():
        first, second = (assemble(_cut(splits)).program.stages for splits in ("dense128,dense64", "dense128,logits"))
    assert len(counted) == len(set(counted)) == 5
    assert first[0] == second[0]
    alone = [assemble(_cut(splits)).program.stages for splits in ("dense128,dense64", "dense128,logits")]
    assert [first, second] == alone


def test_stages_whose_accumulators_differ_are_counted_each():
    cache, key = Cache(), "pipeline.gradient_accumulation_dtype"
    for dtype in ("{dense256: float64}", "{dense256/W: float64}", "float64", "null"):
        request = _cut("dense128,dense64", **{key: dtype})
        with cache.activate():
            shared = assemble(request)
        assert shared.program.stages == assemble(request).program.stages


def test_what_replicas_do_together_is_priced_once_for_cuts_that_have_it_alike(monkeypatch):
    together._sum_cycles.cache_clear()
    priced = []
    original = pricing.all_reduce_cycles
    monkeypatch.setattr(pricing, "all_reduce_cycles", lambda *of: priced.append(of) or original(*of))
    suggest(
        load_request(SCENARIOS / "digits_training.yaml"), Limits(replicas=(2,), schedules=("grouped",)), runners_up=0
    )
    assert priced
    assert all(one not in priced[:place] for place, one in enumerate(priced))


#: GPipe's order, which forgets a pass where there are more than two micro-batches.
FORGETFUL = """
from ipusim.pipeline.order import Order

def gpipe(shape):
    passes = {
        ipu: [f"{kind}{stage}.{micro_batch}" for kind in "FB" for micro_batch in range(shape.micro_batches)]
        for stage, ipu in enumerate(shape.mapping)
    }
    kept = {ipu: each[: len(each) - (shape.micro_batches > 2)] for ipu, each in passes.items()}
    return Order.from_passes("gpipe", shape, kept)
"""


def test_a_schedule_of_ones_own_by_the_name_of_one_of_the_house_is_checked_at_every_count(tmp_path):
    (tmp_path / "mine.py").write_text(FORGETFUL)
    stages = [{"name": f"s{number}", "forward": 100, "backward": 200} for number in range(2)]
    cache = Cache()

    def laid_out(schedule, count):
        pipeline = {"schedule": schedule, "gradient_accumulation_count": count, "stages": stages}
        with cache.activate():
            return assemble(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline}, folder=tmp_path))

    for schedule in ("gpipe", "mine.py:gpipe"):
        assert laid_out(schedule, 2).schedule.name == "gpipe"
    assert laid_out("gpipe", 4).schedule.name == "gpipe"
    with pytest.raises(PlanError, match=r"^pipeline\.schedule: mine\.py:gpipe: the plan breaks rule"):
        laid_out("mine.py:gpipe", 4)
