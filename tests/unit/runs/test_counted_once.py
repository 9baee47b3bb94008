"""What several cuts of a model have in common is worked out once, and comes out as when each is laid out alone."""

from ipusim.api import pricing
from ipusim.app.scenario.load import load_request
from ipusim.app.suggest import together
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.suggestion import suggest
from ipusim.base.cache import Cache
from ipusim.model.stages import layer_profile as profiles
from ipusim.runs.assemble import program
from ipusim.runs.assemble.assemble import assemble
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
