"""Computations on the host in the middle of a stage: the same results, what crosses for them, and what that takes."""

import math
from contextlib import nullcontext
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from ipusim.analysis.critical_path import critical_path_of
from ipusim.base.errors import ModelError, ProgramTypeError
from ipusim.hardware.host import M2000_HOST
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, RecomputationMode
from ipusim.machine.extent import most_spans
from ipusim.model.work import VectorWork
from ipusim.pipeline.ops import Pass
from ipusim.runs.waterfall import waterfall_of
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import TimePart
from tests.programs import tensorflow
from tests.trace_files import perfetto_file
from tests.traced_training import ipus
from tests.traced_training import train as train_pipeline

pytestmark = pytest.mark.usefixtures("tf")

CLOCK = 1_330_000_000
BATCH, WIDTH, UNITS, COUNT, RUNS = 4, 3, 5, 4, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, WIDTH)).astype(np.float32)
LABELS = RNG.normal(size=(64, 1)).astype(np.float32)


def here(name="outside"):
    """Stand for the scope where there is none."""
    return nullcontext()


def outside(name="outside"):
    from ipusim.ipu.scopes import outside_compilation_scope  # noqa: PLC0415

    return outside_compilation_scope(name)


def variable(name, value):
    return tensorflow().compat.v1.get_variable(name, initializer=value)


def kernel():
    return variable("v", np.full((WIDTH, UNITS), 0.1, np.float32))


def first(tf, scope, x, labels):
    weights, scale = kernel(), variable("s", np.full(UNITS, 0.3, np.float32))
    a = tf.matmul(x, weights)
    with scope():
        b = tf.tanh(a) * scale
        with scope("within"):
            b = b + a
    with scope("again"):
        c = tf.exp(b)
    return a + b * c, labels


def last(tf, scope, x, labels):
    weights = variable("w", np.full((UNITS, 1), 0.1, np.float32))
    with scope("loss"):
        return tf.reduce_mean((tf.matmul(x, weights) - labels) ** 2)


def train(scope, stages=(first, last), **options):
    """Train stages whose blocks of the host are ``scope``."""
    tf = tensorflow()
    bound = [lambda *given, stage=stage: stage(tf, scope, *given) for stage in stages]
    options = {"gradient_accumulation_count": COUNT, "repeat_count": RUNS, **options}
    return train_pipeline(lambda _: bound, [X, LABELS], batch=BATCH, **options)


def with_last(stage):
    """A stage with blocks, and the last stage without."""
    return [stage, lambda tf, scope, *given: last(tf, here, *given)]


RECOMPUTED = {"device": ipus(2, allow_recompute=True)}
SCHEDULES = {
    "grouped": {},
    "interleaved": {"pipeline_schedule": PipelineSchedule.Interleaved},
    "sequential": {"pipeline_schedule": PipelineSchedule.Sequential},
    "recomputed": {**RECOMPUTED, "recomputation_mode": RecomputationMode.RecomputeThenBackpropagate},
    "recomputed inside": {**RECOMPUTED, "recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved},
}


@cache
def both(schedule):
    """The program with blocks of the host, and without."""
    return train(outside, **SCHEDULES[schedule]), train(here, **SCHEDULES[schedule])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_learns_to_the_same_bits_and_takes_longer(schedule):
    done, plain = both(schedule)
    np.testing.assert_array_equal(done.losses, plain.losses)
    assert done.variables.keys() == plain.variables.keys() == {"v", "s", "w"}
    for name, value in plain.variables.items():
        np.testing.assert_array_equal(done.variables[name], value)
    assert done.timeline.end.max() > plain.timeline.end.max()
    assert not plain.job.costs.host_calls


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_pass_has_its_ways_to_the_host_and_back(schedule):
    """Those of recomputation are those of the forward pass, also where it runs inside the backward pass."""
    done, _ = both(schedule)
    job, timeline = done.job, done.timeline
    host = job.costs.host_calls
    program = job.program
    forward, backward = (tuple(each.call for each in host[kind, 0]) for kind in (Pass.FORWARD, Pass.BACKWARD))
    assert [each.name for each in forward] == ["outside", "again"]
    again = forward if program.shape.recompute_inline else ()
    assert [each.name for each in backward] == [*(each.name for each in again), "again", "outside"]
    assert backward[: len(again)] == again
    if program.shape.recompute:
        assert host[Pass.RECOMPUTE, 0] == host[Pass.FORWARD, 0]
        assert (Pass.RECOMPUTE, 0) in set(zip(job.plan.kind, job.plan.stage, strict=True))
    passes = dict.fromkeys(host, 0)
    for key in zip(job.plan.kind.tolist(), job.plan.stage.tolist(), strict=True):
        passes[key] += key in host
    spans = sum(times * sum(bool(each.send) + bool(each.read) for each in host[key]) for key, times in passes.items())
    moved = timeline.rows(SpanKind.OUTSIDE)
    assert len(moved) == spans * job.executions
    size = sum(
        times * sum(each.call.sent_bytes + each.call.returned_bytes for each in host[key])
        for key, times in passes.items()
    )
    assert timeline.bytes[moved].sum() == size * job.executions
    assert len(timeline.start) <= most_spans(job.plan, job.system, job.costs, job.executions)


def test_bytes_and_cycles_by_hand():
    """One stage, on the host ``tanh(a) + b`` of two arrays of 4 x 5, of which the result comes back."""
    job = both("grouped")[0].job
    array, scale = 4 * BATCH * UNITS, 4 * UNITS
    host, again = job.costs.host_calls[Pass.FORWARD, 0]
    # Out go a and the scale; b comes back, and is there for exp already, which comes back too.
    assert (host.call.sent_bytes, host.call.returned_bytes) == (array + scale, array)
    assert (again.call.sent_bytes, again.call.returned_bytes) == (0, array)
    assert sum((work.vector for work in host.call.work), VectorWork()) == VectorWork(
        elementwise=2 * BATCH * UNITS, transcendentals=BATCH * UNITS
    )

    def cycles(amount, per_second):
        return math.ceil(Fraction(amount) * CLOCK / per_second)

    operations = 2 * BATCH * UNITS + Fraction("4.7") * BATCH * UNITS  # a tanh counts as 4.7
    assert host.send == cycles(array + scale, M2000_HOST.outfeed_bytes_per_s) == 36
    assert host.drain == cycles(array + scale, M2000_HOST.host_drain_bytes_per_s) == 46
    assert host.compute == 3 * CLOCK // 10**6 + cycles(operations, 2_250_000_000 * 8) == 3990 + 10
    assert host.fill == cycles(array, M2000_HOST.host_fill_bytes_per_s) == 16
    assert host.read == cycles(array, M2000_HOST.infeed_bytes_per_s) == 33
    assert (again.send, again.drain) == (0, 0)
    # Back: the gradient of c out, and none back, for its own is added to that of b on the host; then that of b out, and
    # those of a and the scale back.
    again, host = job.costs.host_calls[Pass.BACKWARD, 0]
    assert [(each.call.sent_bytes, each.call.returned_bytes) for each in (again, host)] == [
        (array, 0),
        (array, array + scale),
    ]
    # The last stage: x, weights and labels out, the loss back; those of x and the weights back.
    (loss,) = job.costs.host_calls[Pass.FORWARD, 1]
    assert (loss.call.sent_bytes, loss.call.returned_bytes) == (array + scale + 4 * BATCH, 4)
    (loss,) = job.costs.host_calls[Pass.BACKWARD, 1]
    assert (loss.call.sent_bytes, loss.call.returned_bytes) == (4, array + scale)
    assert any(work.products for work in loss.call.work)


def test_the_timeline_has_the_way_there_the_wait_and_the_way_back_before_the_pass(read_perfetto):
    done, _ = both("grouped")
    timeline, costs = done.timeline, done.job.costs
    rows = timeline.rows(SpanKind.OUTSIDE, SpanKind.HOST_WAIT, SpanKind.FORWARD)
    own = [row for row in rows if timeline.ipu[row] == 0 and timeline.end[row] > costs.host.fill][:6]
    one, again = costs.host_calls[Pass.FORWARD, 0]
    length = [
        (SpanKind.OUTSIDE, one.send),
        (SpanKind.HOST_WAIT, one.host),
        (SpanKind.OUTSIDE, one.read),
        (SpanKind.HOST_WAIT, again.host),
        (SpanKind.OUTSIDE, again.read),
        (SpanKind.FORWARD, costs.passes[Pass.FORWARD, 0]),
    ]
    assert [(timeline.kind[row], timeline.end[row] - timeline.start[row]) for row in own] == length
    for before, row in pairwise(own):
        assert timeline.start[row] == timeline.end[before]
    # What the IPU reads was released by the host's work, and the host's work by the IPU's write.
    work = timeline.cause[own[2]]
    assert (timeline.kind[work], timeline.cause[work]) == (SpanKind.HOST, own[0])
    trace = read_perfetto(perfetto_file(timeline))
    assert "outside" in {track[-1] for track in trace.tracks}
    there = [each for each in trace.slices if each.name.startswith("to the host and back")]
    assert len(there) == len(timeline.rows(SpanKind.OUTSIDE))
    assert {SpanKind.OUTSIDE, SpanKind.HOST} <= set(timeline.kind[critical_path_of(timeline).rows].tolist())
    assert waterfall_of(done.job, timeline).cycles[TimePart.HOST] > 0


def test_a_host_does_one_request_after_the_other():
    """Two stages of a time-step ask at the same time: the later one waits for the earlier one's work too."""

    def slow(tf, scope, x, labels):
        with scope():
            return tf.tanh(x) + 1.0, labels

    stages = [slow, slow, lambda tf, scope, x, labels: first(tf, here, x, labels), *with_last(None)[1:]]
    timeline = train(outside, stages, gradient_accumulation_count=8).timeline
    work = timeline.rows(SpanKind.HOST)
    work = work[timeline.link[work] == HostTrack.OUTSIDE]
    order = work[np.argsort(timeline.start[work], kind="stable")]
    assert (timeline.start[order[1:]] >= timeline.end[order[:-1]]).all()
    assert (timeline.start[order[1:]] == timeline.end[order[:-1]]).any()


def test_what_scopes_keep_lies_on_the_host():
    """Kept on the IPU is x, not what the host has made for itself, nor what it needs alone."""

    def stage(tf, scope, x, labels):
        weights = kernel()
        with scope():
            return tf.tanh(tf.tanh(tf.matmul(x, weights))), labels

    held = [train(scope, with_last(stage)).job.program.stages[0].stash_bytes for scope in (outside, here)]
    assert held == [0, 4 * BATCH * (WIDTH + 2 * UNITS)]


USERS = """
import numpy as np
def Twice(x, attributes):
    return 2 * x
def Twice_grad(gradients, outputs, inputs, attributes):
    return 2 * gradients[0]
def Twice_cost(x):
    return {"forward": 1000, "backward": 3000}
"""


def test_an_operation_of_a_users_on_the_host_goes_there_and_takes_its_cycles_there(tmp_path):
    from ipusim.ipu import custom_ops  # noqa: PLC0415

    path = tmp_path / "users.py"
    path.write_text(USERS)
    outs = {"output_types": [np.float32], "output_shapes": [(BATCH, UNITS)]}

    def stage(tf, scope, x, labels):
        x = tf.matmul(x, kernel())
        if scope is here:
            return custom_ops.precompiled_user_op([x], str(path), outs=outs, op_name="Twice")[0], labels
        return custom_ops.cpu_user_operation([x], str(path), outs, "mine", "Twice")[0], labels

    done, plain = train(outside, with_last(stage)), train(here, with_last(stage))
    np.testing.assert_array_equal(done.losses, plain.losses)
    host, array = done.job.costs.host_calls, 4 * BATCH * UNITS
    for kind, cycles, side in ((Pass.FORWARD, 1000, "forward"), (Pass.BACKWARD, 3000, "backward")):
        (call,) = host[kind, 0]
        assert (call.call.name, call.call.sent_bytes, call.call.returned_bytes) == ("mine", array, array)
        assert call.compute == cycles
        on_ipu = plain.job.program.stages[0]
        (users,) = [work.cycles for work in getattr(on_ipu, side) if hasattr(work, "cycles")]
        assert users == cycles


@pytest.mark.parametrize("function", ["numpy_function", "py_function"])
def test_a_python_function_of_the_programs_own_is_a_call_of_the_host(function):
    def stage(tf, scope, x, labels):
        x = tf.matmul(x, kernel())
        added = getattr(tf, function)(lambda value: value * value, [x], tf.float32)
        added.set_shape(x.shape)
        return x + tf.stop_gradient(added), labels

    def written(tf, scope, x, labels):
        x = tf.matmul(x, kernel())
        return x + tf.stop_gradient(x * x), labels

    done, plain = train(here, with_last(stage)), train(here, with_last(written))
    np.testing.assert_allclose(done.losses, plain.losses, rtol=1e-6)
    (call,) = done.job.costs.host_calls[Pass.FORWARD, 0]
    array = 4 * BATCH * UNITS
    assert (call.call.sent_bytes, call.call.returned_bytes) == (array, array)


def test_untrained_variables_go_out_and_what_is_written_to_them_comes_back(tf):
    def stage(tf, scope, x, labels):
        v1 = tf.compat.v1
        mean = v1.get_variable("mean", initializer=np.zeros(UNITS, np.float32), trainable=False)
        x = tf.matmul(x, kernel())
        with scope():
            now = 0.9 * mean + 0.1 * tf.reduce_mean(x, axis=0)
            with tf.control_dependencies([v1.assign(mean, now)]):
                y = x - now
        return y, labels

    done, plain = train(outside, with_last(stage)), train(here, with_last(stage))
    np.testing.assert_array_equal(done.losses, plain.losses)
    np.testing.assert_array_equal(done.variables["mean"], plain.variables["mean"])
    (call,) = [each.call for each in done.job.costs.host_calls[Pass.FORWARD, 0]]
    array, row = 4 * BATCH * UNITS, 4 * UNITS
    assert (call.sent_bytes, call.returned_bytes) == (array + row, array + row)


def test_outside_of_programs_and_with_synthetic_data_nothing_goes_to_the_host(tf, monkeypatch):
    with outside():
        assert float(tf.tanh(0.5)) == pytest.approx(math.tanh(0.5))
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data --synthetic_data_initializer=2")
    assert not train(outside).job.costs.host_calls


def test_what_is_refused(tf):
    from ipusim.ipu import cross_replica_ops, embedding_ops  # noqa: PLC0415

    with pytest.raises(ProgramTypeError, match="name: expected a text, got 3"), outside(3):
        pass
    with tf.Graph().as_default(), outside("mine"):
        table = embedding_ops.create_host_embedding("rows", (4, 2), np.float32)
        for call, what in (
            (lambda: table.lookup([0]), "table 'rows' is looked up in"),
            (lambda: cross_replica_ops.cross_replica_sum(tf.ones([2])), "collective 'cross_replica_sum' is called in"),
        ):
            with pytest.raises(ModelError, match=f"{what} scope 'mine', whose operations run on the host: "):
                call()
