"""The comparison with one IPU, against scenarios of one IPU that are written by hand, and in all of its faces."""

import pytest

from ipusim.api import Request, assemble, execute
from ipusim.app.render.verdict import verdict_table
from ipusim.app.scenario.load import load_job
from tests.scenarios import SCENARIOS

STEP_1, STEP_3 = SCENARIOS / "tutorial_step1_single_ipu.yaml", SCENARIOS / "tutorial_step3_pipelining.yaml"
DATA = {"type": "synthetic", "shape": [32], "classes": 8, "samples": 640}


@pytest.mark.parametrize("synthetic", ["true", "false"])
def test_the_tutorial_is_compared_with_its_own_first_step_on_one_ipu_with_or_without_its_data(synthetic):
    changes = [f"use_synthetic_data={synthetic}", "numerics=off"]
    summary = execute(load_job(STEP_3, changes)).summary
    alone = execute(load_job(STEP_1, changes)).summary
    assert summary.verdict.single_ipu_cycles == -(-alone.throughput.run_cycles // alone.executions)
    assert summary.verdict.speed_up == alone.throughput.run_cycles / summary.throughput.run_cycles
    assert summary.verdict.speed_up > 1


def model(system, pipeline, **more):
    """Return the Request of two dense layers, trained on samples that the host sends."""
    layers = [
        {"name": "a", "type": "dense", "units": 64},
        {"name": "b", "type": "dense", "units": 8},
        {"name": "loss", "type": "softmax_cross_entropy"},
    ]
    options = {"numerics": "off", "optimizer": {"type": "momentum", "learning_rate": 0.1, "momentum": 0.9}}
    return Request.from_dict(
        {
            "system": {"name": "m2000", **system},
            "data": DATA,
            "model": {"layers": layers},
            "pipeline": {"micro_batch_size": 4, "repeat_count": 3, **pipeline},
            "steps": 2,
            **options,
            **more,
        }
    )


SLOW = {"bandwidth": "1 GB/s"}
CUT = {"splits": ["b"], "gradient_accumulation_count": 8}


@pytest.mark.parametrize(
    ("asked", "times"),
    [
        (model({"auto_select_ipus": 2}, CUT), 1),
        (model({"auto_select_ipus": 4}, CUT), 2),
        (model({"auto_select_ipus": 2, "host": {"count": 2}}, CUT), 2),
        (model({"auto_select_ipus": 2}, {**CUT, "schedule": "1f1b"}), 1),
        (model({"auto_select_ipus": 2}, {**CUT, "allow_recompute": True}), 1),
        (model({"auto_select_ipus": 2}, {**CUT, "schedule": "dualpipe"}), 1),
        (model({"auto_select_ipus": 2, "enable_remote_buffers": True, "streaming_memory": SLOW}, CUT), 1),
        (model({"auto_select_ipus": 2}, CUT, disturbances=[{"ipu": 1, "slower": 3}]), 1),
    ],
    ids=["pipeline", "replicas", "hosts", "point-to-point", "recomputation", "two copies", "offloaded", "disturbed"],
)
def test_replicas_and_hosts_are_micro_batches_of_one_ipu_that_computes_nothing_again(asked, times):
    alone = {"schedule": "single", "gradient_accumulation_count": 8 * times}
    summary = execute(assemble(asked)).summary
    assert summary.throughput.effective_batch_size == 4 * 8 * times
    one = execute(assemble(model({"auto_select_ipus": 1}, alone))).summary
    assert one.throughput.effective_batch_size == summary.throughput.effective_batch_size
    assert summary.verdict.single_ipu_cycles == -(-one.throughput.run_cycles // 6)
    assert summary.verdict.speed_up == one.throughput.run_cycles / summary.throughput.run_cycles
    assert (one.verdict.speed_up, one.verdict.single_ipu_cycles) == (1, -(-one.throughput.run_cycles // 6))


def test_inference_of_stages_known_by_their_cost_waits_for_the_host_on_one_ipu_too():
    """Four stages of 1,000 cycles, and a host that takes 1 ms for each element of the infeed."""
    asked = Request.from_dict(
        {
            "system": {"name": "m2000", "auto_select_ipus": 4, "host": {"host_fill": "1 GB/s"}},
            "infeed": {"element_bytes": 1_000_000},
            "pipeline": {
                "schedule": "grouped",
                "gradient_accumulation_count": 64,
                "stages": [{"name": f"s{stage}", "forward": 1000} for stage in range(4)],
            },
        }
    )
    found = execute(assemble(asked)).summary.verdict
    assert found.single_ipu_cycles >= 64 * 1_330_000  # 1 ms at 1.33 GHz, the host's time for each element
    assert found.speed_up == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("concurrent_stages", "concurrent stages have separate IPUs"),
        ("overlapped_io", "Input and output on I/O tiles are overlapped with computation by the schedule grouped only"),
    ],
)
def test_a_program_that_one_ipu_cannot_run_is_not_compared_and_the_reason_is_given(name, why):
    summary = execute(load_job(SCENARIOS / f"{name}.yaml", ["numerics=off"])).summary
    assert (summary.verdict.single_ipu_cycles, summary.verdict.speed_up) == (None, None)
    assert summary.verdict.single_ipu_refusal.startswith(why)
    assert dict(verdict_table(summary).rows)["against one IPU"] == f"not known: {summary.verdict.single_ipu_refusal}"
