"""Code: estimated from compute sets that differ, against published profiles, and what verdicts say of it."""

import re

import pytest

from ipusim.analysis.fullest_memory import fullest
from ipusim.analysis.memory_summary import memory_summary
from ipusim.app.scenario.load import load_request
from ipusim.app.scenario.problems import ScenarioError
from ipusim.hardware.generations import GC2, GC200
from ipusim.hardware.rates import DEFAULT_RATES
from ipusim.pipeline.holders import Holder
from ipusim.pricing.code import code_bytes, estimated_code, least_code
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.memory import RequestMemoryError
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from tests.effort import sampled
from tests.scenarios import SCENARIOS

MIB = 2**20


def dense(*units, elements=4096, samples=16, **more):
    """Return a request for layers of so many units on one IPU, which infer."""
    layers = [{"name": f"d{number}", "type": "dense", "units": size} for number, size in enumerate(units)]
    return Request.from_dict(
        {
            "system": {"name": "m2000"},
            "data": {"type": "synthetic", "shape": [elements], "classes": 2, "samples": 64},
            "model": {"layers": layers},
            "numerics": "off",
            "training": False,
            "pipeline": {"schedule": "single", "micro_batch_size": samples, "gradient_accumulation_count": 1},
            **more,
        }
    )


def code_of(request):
    job = assemble(request)
    held = [dict(each.resident)[Holder.CODE] for each in job.memory.footprint.ipus]
    assert held == [each.assumed_bytes for each in job.memory.footprint.ipus]
    assert held == list(estimated_code(job.plan, job.program, job.system).values())
    return held


def test_the_layer_that_the_rates_come_from_takes_what_was_measured():
    """32.8 MiB less 25.9 MiB of tensors: Graphcore's profile of a dense layer of 1,024 units on 16 x 4,096."""
    (held,) = code_of(dense(1024))
    assert held == pytest.approx(6.9 * MIB, rel=0.05)


def test_a_program_on_the_first_generation_takes_about_what_its_report_says():
    """Stacks, control, vertex and exchange code, and vertices, of a sum of two numbers; no rate rests on it."""
    reported = 3_852_288 + 851_272 + 170_788 + 60_792 + 351_328 + 14_640
    assert code_bytes(4, GC2, DEFAULT_RATES) == pytest.approx(reported, rel=0.2)


def test_layers_that_are_alike_share_their_code_and_others_do_not():
    one, alike, other = (code_of(dense(*units, elements=512))[0] for units in ([512], [512] * 6, [512, 256]))
    assert one == alike < other


def test_each_ipu_has_the_code_of_its_own_stages():
    request = load_request(SCENARIOS / "digits_training.yaml").replace({"numerics": "off"})
    every = code_of(request)
    least = code_bytes(0, GC200, DEFAULT_RATES)
    assert len(set(every)) > 1
    assert all(held > least for held in every)
    assert (
        least_code(assemble(request).program.stages, assemble(request).system.ipu, assemble(request).system.rates)
        == least
    )


@pytest.mark.parametrize(("stated", "held"), [(0, 0), ("3 MiB", 3 * MIB)])
def test_what_is_stated_counts_and_nothing_is_assumed(stated, held):
    (footprint,) = assemble(dense(1024, code_bytes=stated)).memory.footprint.ipus
    assert (dict(footprint.resident)[Holder.CODE], footprint.assumed_bytes) == (held, 0)


def test_stages_of_given_cycles_have_no_code_and_verdicts_say_so(load):
    text = """
system: {name: m2000}
pipeline:
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 10, backward: 20, parameter_bytes: 1 MiB}
    - {name: b, forward: 10, backward: 20, parameter_bytes: 2 MiB}
"""
    job = load(text)
    assert least_code(job.program.stages, job.system.ipu, job.system.rates) == 0
    assert job.memory.verdict() == (
        "Memory: every IPU fits; the fullest is IPU 1 with 4 MiB of 897 MiB; code is not included."
    )
    assert load(text, "code_bytes=1 MiB").memory.verdict().endswith(" with 5 MiB of 897 MiB.")
    with pytest.raises(ScenarioError, match=r" of an IPU; code is not included\. Largest: parameters"):
        load(text, "pipeline.stages.1.parameter_bytes=1000 MiB")


def test_verdicts_say_how_much_code_is_assumed():
    job = assemble(dense(1024))
    assert job.memory.verdict().endswith(" of 897 MiB; 7.072 MiB of the 58.2 MiB is code (estimated).")
    assert assemble(dense(1024, code_bytes=0)).memory.verdict().endswith("; code is not included.")
    summary = memory_summary(job.memory, execute(job).timeline)
    assert [ipu.holders[Holder.CODE.key] for ipu in summary.ipus] == code_of(dense(1024))


def test_where_assumed_code_alone_is_too_much_the_verdict_says_that_and_nothing_is_refused():
    job = assemble(dense(1024, rates={"program_code": 630_000}))
    assert job.memory.verdict() == (
        "Memory: fits only without the estimated code: with the estimated 885.2 MiB of code IPU 0 needs 936.3 MiB, "
        "39.3 MiB more than the 897 MiB of an IPU."
    )
    assert (job.memory.too_large, [peak.ipu for peak in job.memory.excess_peaks]) == ((), [0])
    found = fullest(job.memory.summary)
    assert (found.fits, found.excess_bytes) == ("fits only without the estimated code", 0)


def test_what_does_not_fit_without_assumed_code_is_refused_for_what_can_be_changed():
    with pytest.raises(RequestMemoryError) as caught:
        assemble(dense(65_536, samples=64, precision="float32", rates={"program_code": 630_000}))
    assert "Out of memory on IPU 0: " in str(caught.value)
    assert re.search(r": (.+ GiB) in .* of an IPU; 885\.4 MiB of the \1 is code \(estimated\)\. ", str(caught.value))
    assert "code_bytes" not in str(caught.value)


@sampled(2)
@pytest.mark.parametrize("name", ["bert_base", "bert_large", "conformer", "gpt2", "resnet50", "small_cnn"])
def test_programs_that_ran_fit_with_the_code_that_is_assumed(name):
    job = assemble(load_request(SCENARIOS / f"{name}.yaml").replace({"numerics": "off"}))
    assert job.memory.excess_peaks == ()
    assert all(each.assumed_bytes > code_bytes(0, job.system.ipu, DEFAULT_RATES) for each in job.memory.footprint.ipus)
