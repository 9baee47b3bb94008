"""The programs of scenarios/python/: what they print and do, and that scenarios of them take their time."""

import io
import math
import re
from contextlib import redirect_stdout
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.write import scenario_text
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.ipu.programs.program_file import ProgramFile
from ipusim.runs.session import Session
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import Span
from tests.effort import rarest, sampled, slowest
from tests.programs import PROGRAMS, needs_tensorflow, once


def printed(out):
    """Return step, epoch and mean loss of each line that says them."""
    lines = re.findall(r"^Step (\d+), Epoch ([\d.]+), Mean loss: ([\d.]+)$", out, re.MULTILINE)
    return [(int(step), float(epoch), float(loss)) for step, epoch, loss in lines]


def test_the_pipeline_trains_as_the_tutorial_shows():
    """Losses of more epochs are those of its text, in tests/oracles/test_seeds_programs.py."""
    out = once("step3_pipelining", "--epochs", "2").out
    assert [row[:2] for row in printed(out)] == [(0, 0.0), (1, 1.0)]
    assert printed(out)[-1][-1] < 1.5
    assert "Steps 2 x examples per step 5120 (== 10240 training examples, 2.0 epochs of 5120" in out


def test_layers_are_printed_as_in_the_tutorial():
    ran = once("step4_configurable_stages", "--epochs", "1", "--splits", "dense128", "dense64", "dense32")
    out, (program,) = ran.out, ran.programs
    assert "Layers:\n flatten, dense256, dense128, dense64, dense32, logits, cel\n" in out
    assert "Stages:\n 0. flatten-dense256\n 1. dense128\n 2. dense64\n 3. dense32-logits-cel\n" in out
    assert sorted(program.variables)[:2] == [
        "FCModel/stage0_dense256/dense256/dense/bias",
        "FCModel/stage0_dense256/dense256/dense/kernel",
    ]


def test_inference_over_two_ipus_of_four():
    ran = once("inference")
    out, (program,) = ran.out, ran.programs
    assert out.startswith("Probabilities (500, 8, 10), classes (500, 8)\n")
    assert out.endswith("Sum of each row of probabilities: 1.000\n")
    assert program.job.plan.shape.mapping == (3, 1)
    assert not program.job.plan.shape.training


@slowest
def test_training_with_a_rate_of_each_run():
    ran = once("training")
    out, (program,) = ran.out, ran.programs
    rates = re.findall(r"^Learning rate ([\d.]+): loss from ([\d.]+) to ([\d.]+)$", out, re.MULTILINE)
    assert [rate for rate, _, _ in rates] == ["0.002", "0.001"]
    losses = [float(loss) for _, *both in rates for loss in both]
    assert losses == sorted(losses, reverse=True)
    assert (program.job.executions, program.job.plan.shape.micro_batches) == (10, 128)


def test_a_loop_carries_its_counter_and_sends_dictionaries():
    out = once("training_loop").out
    assert out == "counter 10\nd1 (10, 800) from 2.0 to 2.0\nd2 (10, 800) from 0.0 to 0.0\n"


@slowest
def test_training_and_evaluation_share_variables():
    ran = once("evaluation")
    out, (evaluate, train) = ran.out, ran.programs
    lines = re.findall(r"^Step (\d+): held out loss ([\d.]+), accuracy ([\d.]+)$", out, re.MULTILINE)
    assert [int(step) for step, *_ in lines] == [0, 10, 20, 30]
    losses = [float(loss) for _, loss, _ in lines]
    assert losses[0] > math.log(10) > 10 * losses[1] > 10 * losses[2]
    assert float(lines[-1][2]) == 1
    assert (evaluate.job.plan.shape.training, train.job.plan.shape.training) == (False, True)


@slowest
def test_the_mean_losses_of_a_queue_that_is_iterated_over():
    means = [float(mean) for mean in re.findall(r"^Loss: ([\d.]+)$", once("outfeed_iteration").out, re.MULTILINE)]
    assert (len(means), means[0] > 1, means[-1] < 0.05) == (100, True, True)


def test_a_thread_prints_each_step():
    """That it does so while the run goes on is in tests/integration/test_threads.py."""
    lines = re.findall(r"^Step (\d+) loss = +([\d.]+)$", once("outfeed_example").out, re.MULTILINE)
    losses = [float(loss) for _, loss in lines]
    assert [int(step) for step, _ in lines] == [*range(100)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) / 2


@slowest
def test_concurrent_stages_learn():
    ran = once("concurrent_stages")
    out, (program,) = ran.out, ran.programs
    first, last = map(float, re.findall(r"\d\.\d+", out))
    assert (first > 2, last < 0.05) == (True, True)
    assert program.job.plan.shape.parts == ((0,), (1, 2), (3,))


def test_the_measured_rate_of_a_dataset_is_a_scenarios():
    """The times are real: what holds is how much was read, and that the scenario's host needs as long for it."""
    out = once("dataset_benchmark").out
    assert len(re.findall(r"^Epoch [01]: [\d,]+ elements/second, [\d.]+ GB/s\.$", out, re.MULTILINE)) == 2
    assert "\n2 epochs of 100 elements\n100480 bytes in each\n" in out
    (rate,) = re.findall(r"^--set 'system\.host\.data_rate=([\d.]+) GB/s'$", out, re.MULTILINE)
    changes = ("use_synthetic_data=false", f"system.host.data_rate={rate} GB/s")
    job = load_job(Path("scenarios/tutorial_step3_pipelining.yaml"), changes)
    assert job.system.host_data_cycles(100480) == math.ceil(100480 * job.system.clock_hz / (Fraction(rate) * 10**9))


@slowest
def test_sequences_are_read():
    ran = once("sequences")
    out, (program,) = ran.out, ran.programs
    found = re.findall(r"^Epoch \d: loss ([\d.]+), words read (\d+)%$", out, re.MULTILINE)
    losses = [float(loss) for loss, _ in found]
    assert losses == sorted(losses, reverse=True)
    assert (losses[0] > 5, losses[-1] < 0.5, int(found[0][1]) < 50, int(found[-1][1]) > 90) == (True,) * 4
    assert program.job.program.shape.mapping == (0, 1)


def test_pictures_are_normalised_cut_and_counted():
    out = once("pictures").out
    first, last = map(float, re.findall(r"\d\.\d{3}", out))
    assert (first > 2, last < first / 2) == (True, True)
    histograms = [list(map(int, row.split(", "))) for row in re.findall(r": \[([\d, ]+)\]$", out, re.MULTILINE)]
    assert [sum(row) for row in histograms] == [16 * 8 * 10] * 2
    assert histograms[1][-1] > histograms[0][-1]
    levels = list(map(float, re.findall(r"-?\d+\.\d+", out.splitlines()[-1])))
    assert levels[1] == pytest.approx((levels[0] + levels[2]) / 2, abs=0.01)


def test_an_operation_of_ones_own_trains_and_takes_its_cycles():
    ran = once("custom_operation")
    out, (program,) = ran.out, ran.programs
    first, last = map(float, re.findall(r"\d\.\d+", out))
    assert (first > 2, last < 0.5) == (True, True)
    stage = program.job.program.stages[0]
    there, back = (work.cycles for work in (*stage.forward, *stage.backward) if hasattr(work, "cycles"))
    # 200 cycles, and 30 or 20 for each row of vectors on a tile, as soft_plus.py says.
    assert 2 * (there - 200) == 3 * (back - 200) > 0


def test_what_the_host_computes_takes_its_way_there_and_back():
    ran = once("outside_compilation")
    out, (program,) = ran.out, ran.programs
    first, last = map(float, re.findall(r"\d\.\d+", out))
    assert (first > 2, last < 1.5) == (True, True)
    timeline = program.timeline
    moved = timeline.rows(SpanKind.OUTSIDE)
    # Of each micro-batch, forward and backward, 8 x 64 numbers there and as many back.
    assert len(moved) == 2 * 2 * 16 * 20
    assert set(timeline.bytes[moved].tolist()) == {4 * 8 * 64}


@slowest
def test_replicas_normalise_over_the_samples_of_all():
    """Both stages meet forward; the moments of the first come back, the mean loss of the second does not."""
    ran = once("replicas")
    out, (program,) = ran.out, ran.programs
    assert out.startswith("Replicas [0 1 2 3]\nEach knows the mean loss of all: True\n")
    first, last = map(float, re.findall(r"\d\.\d+", out))
    assert (first > 2, last < 0.5) == (True, True)
    timeline = program.timeline
    met = timeline.rows(SpanKind.COLLECTIVE)
    count = 20 * 8 * 4
    assert np.bincount(timeline.stage[met]).tolist() == [2 * count, count]
    assert set(timeline.bytes[met].tolist()) == {2 * 64 * 4, 4}


def test_the_host_keeps_the_moments_of_variables_on_it():
    """Two of each of four variables; the IPU updates no weights."""
    ran = once("variables_on_host", "--steps", "2")
    (program,) = ran.programs
    assert ran.out == "The host keeps 8 moments of the optimizer\n"
    assert not len(program.timeline.rows(SpanKind.WEIGHT_UPDATE))


def losses_on(hosts, *arguments):
    """Return the losses that several_hosts.py prints on so many hosts."""
    needs_tensorflow()
    with redirect_stdout(io.StringIO()) as printed:
        ProgramFile(PROGRAMS / "several_hosts.py").run(arguments, hosts)
    return [float(loss) for loss in re.findall(r"^Step \d: loss (.+)$", printed.getvalue(), re.MULTILINE)]


@rarest
def test_hosts_train_as_one_host_does(monkeypatch):
    """Each with its part of the batch: the losses over all are those of one host with all of it.

    Horovod's strategy and PopDist's are held so in test_training_on_hosts.
    """
    monkeypatch.setenv("TF_CONFIG", "{}")
    whole = losses_on(None)
    assert len(whole) == 10
    assert (whole[0] > 2, whole[-1] < 1.5) == (True, True)
    np.testing.assert_allclose(losses_on(2, "--strategy", "multi-worker"), whole, atol=0.0011)


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_programs_are_graphcores_and_have_their_row(path):
    """They name ipusim nowhere."""
    assert "ipusim" not in path.read_text(encoding="utf-8")
    assert f"`{path.name}`" in (PROGRAMS / "README.md").read_text(encoding="utf-8")


@slowest
def test_a_table_on_the_host_learns_what_was_looked_up():
    """Forty items stand in the baskets, and no other row of the table changes."""
    ran = once("host_embedding")
    out, (program,) = ran.out, ran.programs
    means = [float(found) for found in re.findall(r"mean loss: ([\d.]+)", out)]
    assert len(means) == 10
    assert means[0] > 0.1
    assert means[-1] < 0.01
    assert out.endswith("40 of 50000 rows have changed\n")
    assert len(program.timeline.rows(SpanKind.HOST_ROWS)) == 3 * 8 * 16


def _ends(out):
    """Loss and accuracy of each line of a progress bar that has ended."""
    return re.findall(r"(\d+)/\1 \[=+\] - \d+\w+ [\d.]+\w*/step - loss: ([\d.e+-]+)(?: - accuracy: ([\d.]+))?", out)


def test_one_ipu_runs_several_steps_in_one_execution():
    out = once("keras_single_ipu", "--epochs", "2").out
    (_, first, _), (_, second, accuracy) = _ends(out)
    assert float(first) > float(second)
    assert accuracy == "1.0000"
    assert "Total params: 101770 " in out
    alone = once("keras_single_ipu", "--epochs", "1", "--steps-per-execution", "4").out
    assert [loss for _, loss, _ in _ends(alone)] == [first]  # executions only say when results come


def test_digits_over_four_ipus_reach_95_percent():
    out = once("keras_sequential", "--epochs", "5").out
    assert " dense_3 (Dense)                               3\n" in out
    (accuracy,) = re.findall(r"^Held out: loss [\d.]+, accuracy ([\d.]+)$", out, flags=re.MULTILINE)
    assert float(accuracy) > 0.95
    assert f"Predicted (384, 10): {accuracy} are right\n" in out


@slowest
def test_functional_models_tell_each_step():
    out = once("keras_functional").out
    told = re.findall(r"After (\d+) steps: mean loss ([\d.]+)$", out, flags=re.MULTILINE)
    assert [int(steps) for steps, _ in told] == [40, 80, 120, 160] * 4
    for model in (told[:8], told[8:]):
        assert float(model[-1][1]) < 0.2 < float(model[0][1])
    assert " both (Concatenate) (0)                 dense_3              1\n" in out


def test_a_model_that_is_loaded_goes_on_to_the_same_bits():
    out = once("keras_saving", "--epochs", "2").out
    assert "Loaded saved after 8 weight updates\nTrained on to the same bits\n" in out
    (last,) = re.findall(r"^Loss ([\d.]+), mean absolute error [\d.]+$", out, flags=re.MULTILINE)
    (first, _) = re.findall(r"^32/32 - \d+s - loss: ([\d.]+)", out, flags=re.MULTILINE)
    assert float(last) < float(first) / 3


def test_a_subclass_says_its_stages_in_call():
    out = once("keras_subclass").out
    first, last = map(float, re.findall(r"Loss from ([\d.]+) to ([\d.]+)", out)[0])
    assert last < first / 50
    assert " dense (Dense) (0)                      input_1              0\n" in out


#: Programs that run nothing on IPUs, and those of which no scenario can be: whose stages call collectives, look rows up
#: on the host or have it compute, or whose hosts do something together between session runs.
WITHOUT = {
    "dataset_benchmark",
    "host_embedding",
    "outfeed_iteration",  # which is outfeed_example, but for how the host reads its queue
    "outside_compilation",
    "replicas",
    "several_hosts",
    "soft_plus",
    "variables_on_host",
}
RECORDED = [path for path in sorted(PROGRAMS.glob("*.py")) if path.stem not in WITHOUT]
#: Programs that take long, also in tests of their own.
LONG = (
    *("training", "step5_estimator", "sequences", "keras_functional"),
    *("evaluation", "concurrent_stages"),
)
#: What makes a program shorter, or other than it is by itself: as it runs in other tests already, where there are such.
ARGUMENTS = {
    "keras_saving": ["--epochs", "2"],
    "keras_sequential": ["--epochs", "5"],
    "keras_single_ipu": ["--epochs", "2"],
    "step1_single_ipu": ["--epochs", "1"],
    "step2_sharding": ["--epochs", "1"],
    "step3_pipelining": ["--epochs", "1", "--schedule", "Interleaved"],
    "step4_configurable_stages": ["--epochs", "1", "--splits", "dense128", "dense64", "dense32"],
    "step5_estimator": ["--epochs", "2", "--model-dir", "{folder}/model"],
}
#: Programs whose stages are layers and nothing else where they train.
OF_LAYERS = {
    *("estimator_on_hosts", "outfeed_example", "training"),
    *("step1_single_ipu", "step2_sharding", "step3_pipelining", "step4_configurable_stages", "step5_estimator"),
}


@sampled(2)
@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[slowest] * (path.stem in LONG), id=path.stem) for path in RECORDED]
)
def test_its_scenario_takes_the_time_of_the_program(path, tmp_path):
    programs = once(path.stem, *(each.format(folder=tmp_path) for each in ARGUMENTS.get(path.stem, []))).recorded
    assert programs
    for each in programs:
        said = as_scenario(each.as_job())
        file = tmp_path / "said.yaml"
        file.write_text(scenario_text(said.request, tmp_path, said.comments), encoding="utf-8")
        assert said.comments
        assert all(f"# {line}\n" in file.read_text(encoding="utf-8") for line in said.comments)
        job = load_job(file, ["numerics=off"])
        assert job.steps == each.steps
        ran, twin = each.run(each.job.request).timeline.expanded(), Session(job).run(job.executions).expanded()
        for name in Span._fields:
            assert getattr(twin, name).tolist() == getattr(ran, name).tolist(), name
        is_of_layers = path.stem in OF_LAYERS and each.job.plan.shape.training
        assert (said.request.options.model is not None) == is_of_layers
