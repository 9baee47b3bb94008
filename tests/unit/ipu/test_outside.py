"""Computations on the host in the middle of a stage: the same results, what crosses for them, and what that takes."""

from __future__ import annotations

import math
from contextlib import nullcontext
from fractions import Fraction
from io import BytesIO
from itertools import groupby, pairwise

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.test_util import check_grads
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.analysis.critical_path import critical_path_of
from ipusim.app.render.perfetto_trace import write_perfetto_trace
from ipusim.app.render.trace_content import TraceContent
from ipusim.base.errors import ModelError, ProgramTypeError, UnsupportedProgramError
from ipusim.hardware.host import M2000_HOST
from ipusim.ipu import custom_ops, embedding_ops, loops, map_gradient_optimizer, ops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, reset_ipu_configuration
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.ipu.tensorflow import keras
from ipusim.machine.extent import most_spans
from ipusim.model.functions.counting import count_several
from ipusim.model.functions.host_scope import on_host
from ipusim.model.functions.python_layer import PythonLayer
from ipusim.model.layers.layer import LayerCost
from ipusim.model.work import VectorWork, Work
from ipusim.pipeline.ops import Pass
from ipusim.runs.waterfall import waterfall_of
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import TimePart
from ipusim.timeline.timeline import Timeline
from tests.effort import sampled, share

CLOCK = 1_330_000_000
BATCH, WIDTH, UNITS, COUNT, RUNS = 4, 3, 5, 4, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, WIDTH)).astype(np.float32)
LABELS = RNG.normal(size=(64, 1)).astype(np.float32)


@pytest.fixture(autouse=True)
def forget():
    tf.reset_default_graph()
    yield
    reset_ipu_configuration()


def here(name="outside"):
    """Stand for the scope where there is none."""
    return nullcontext()


def first(scope, x, labels):
    weights = tf.get_variable("v", initializer=np.full((WIDTH, UNITS), 0.1, np.float32))
    scale = tf.get_variable("s", initializer=np.full(UNITS, 0.3, np.float32))
    a = tf.matmul(x, weights)
    with scope():
        b = tf.tanh(a) * scale
        with scope("within"):
            b = b + a
    with scope("again"):
        c = tf.exp(b)
    return a + b * c, labels


def last(scope, x, labels):
    weights = tf.get_variable("w", initializer=np.full((UNITS, 1), 0.1, np.float32))
    with scope("loss"):
        return tf.reduce_mean((tf.matmul(x, weights) - labels) ** 2)


def learn(loss):
    return OptimizerFunctionOutput(CrossReplicaOptimizer(GradientDescentOptimizer(0.1)), loss)


def device(ipus, recompute=False):
    config = IPUConfig()
    config.auto_select_ipus, config.allow_recompute = ipus, recompute
    return config


def train(scope, stages=(first, last), *, ipus=2, recompute=False, **options):
    """Return losses and the pipeline of these stages, whose scopes for the host are ``scope``."""
    tf.reset_default_graph()
    data = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH, drop_remainder=True).repeat()
    outfeed = IPUOutfeedQueue()
    done = pipeline(
        [lambda *given, stage=stage: stage(scope, *given) for stage in stages],
        infeed_queue=IPUInfeedQueue(data),
        outfeed_queue=outfeed,
        config=device(ipus, recompute),
        **{"gradient_accumulation_count": COUNT, "repeat_count": RUNS, "optimizer_function": learn, **options},
    )
    return np.array(outfeed.dequeue()[0]), done


SCHEDULES = {
    "grouped": {},
    "interleaved": {"pipeline_schedule": PipelineSchedule.Interleaved},
    "sequential": {"pipeline_schedule": PipelineSchedule.Sequential},
    "recomputed": {"recompute": True, "recomputation_mode": RecomputationMode.RecomputeThenBackpropagate},
    "recomputed inside": {
        "recompute": True,
        "recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved,
    },
    "replicas": {"ipus": 4},
}


@pytest.fixture(scope="module", params=SCHEDULES)
def both(request):
    """The program with scopes, and without."""
    options = SCHEDULES[request.param]
    return train(scopes.outside_compilation_scope, **options), train(here, **options)


@sampled(2)
def test_it_learns_to_the_same_bits_and_takes_longer(both):
    (losses, done), (right, plain) = both
    np.testing.assert_array_equal(losses, right)
    assert done.variables.keys() == plain.variables.keys() == {"v", "s", "w"}
    for name, value in plain.variables.items():
        np.testing.assert_array_equal(done.variables[name], value)
    assert done.timeline.end.max() > plain.timeline.end.max()
    assert not plain._session.job.costs.host_calls


def test_each_pass_has_its_ways_to_the_host_and_back(both):
    """Those of recomputation are those of the forward pass, also where it runs inside the backward pass."""
    (_, done), _ = both
    job, timeline = done._session.job, done.timeline
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
    assert len(moved) == spans * job.executions * job.system.replicas
    size = sum(
        times * sum(each.call.sent_bytes + each.call.returned_bytes for each in host[key])
        for key, times in passes.items()
    )
    assert timeline.bytes[moved].sum() == size * job.executions * job.system.replicas
    told = most_spans(job.plan, job.system, job.costs, job.executions)
    assert len(timeline.start) <= told <= 1.5 * len(timeline.start)


def test_bytes_and_cycles_by_hand():
    """One stage, on the host ``tanh(a) + b`` of two arrays of 4 x 5, of which the result comes back."""
    _, done = train(scopes.outside_compilation_scope)
    job = done._session.job
    array, scale = 4 * BATCH * UNITS, 4 * UNITS
    host, again = job.costs.host_calls[Pass.FORWARD, 0]
    # Out go a and the scale; b comes back, and is there for exp already, which comes back too.
    assert (host.call.sent_bytes, host.call.returned_bytes) == (array + scale, array)
    assert (again.call.sent_bytes, again.call.returned_bytes) == (0, array)
    (work,) = host.call.work
    assert work.vector == VectorWork(elementwise=2 * BATCH * UNITS, transcendentals=BATCH * UNITS)

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
    assert (again.call.sent_bytes, again.call.returned_bytes) == (array, 0)
    assert (host.call.sent_bytes, host.call.returned_bytes) == (array, array + scale)
    # The last stage: x, weights and labels out, the loss back; its gradient out, those of x and the weights back.
    (loss,) = job.costs.host_calls[Pass.FORWARD, 1]
    assert (loss.call.sent_bytes, loss.call.returned_bytes) == (array + scale + 4 * BATCH, 4)
    (loss,) = job.costs.host_calls[Pass.BACKWARD, 1]
    assert (loss.call.sent_bytes, loss.call.returned_bytes) == (4, array + scale)
    assert any(work.products for work in loss.call.work)


def test_the_timeline_has_the_way_there_the_wait_and_the_way_back_before_the_pass(tmp_path, read_perfetto):
    _, done = train(scopes.outside_compilation_scope)
    done.timeline.save(tmp_path / "timeline.npz")
    timeline, costs = Timeline.load(tmp_path / "timeline.npz"), done._session.job.costs
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
    file = BytesIO()
    write_perfetto_trace(TraceContent(timeline), file.write)
    trace = read_perfetto(file.getvalue())
    assert "outside" in {track[-1] for track in trace.tracks}
    there = [each for each in trace.slices if each.name.startswith("to the host and back")]
    assert len(there) == len(timeline.rows(SpanKind.OUTSIDE))
    assert {SpanKind.OUTSIDE, SpanKind.HOST} <= set(timeline.kind[critical_path_of(timeline).rows].tolist())
    assert waterfall_of(done._session.job, timeline).cycles[TimePart.HOST] > 0


def test_a_host_does_one_request_after_the_other():
    """Two stages of a time-step ask at the same time: the later one waits for the earlier one's work too."""

    def slow(scope, x, labels):
        with scope():
            return tf.tanh(x) + 1.0, labels

    stages = [slow, slow, lambda scope, x, labels: first(here, x, labels), lambda scope, *given: last(here, *given)]
    _, done = train(scopes.outside_compilation_scope, stages, ipus=4, gradient_accumulation_count=8)
    timeline = done.timeline
    work = timeline.rows(SpanKind.HOST)
    work = work[timeline.link[work] == HostTrack.OUTSIDE]
    order = work[np.argsort(timeline.start[work], kind="stable")]
    assert (timeline.start[order[1:]] >= timeline.end[order[:-1]]).all()
    assert (timeline.start[order[1:]] == timeline.end[order[:-1]]).any()


def test_replicas_meet_behind_what_their_host_does():
    def stage(scope, x, labels):
        x = tf.matmul(x, tf.get_variable("v", initializer=np.full((WIDTH, UNITS), 0.1, np.float32)))
        with scope():
            y = tf.tanh(x)
        return ops.cross_replica_ops.cross_replica_sum(y) + y, labels

    stages = [stage, lambda scope, *given: last(here, *given)]
    losses, done = train(scopes.outside_compilation_scope, stages, ipus=4)
    right, plain = train(here, stages, ipus=4)
    np.testing.assert_array_equal(losses, right)
    np.testing.assert_array_equal(done.variables["v"], plain.variables["v"])
    assert "outside F0.0; collective F0.0; F0.0" in done._session.job.plan.listing()
    assert "outside B0.0; collective B0.0; B0.0" in done._session.job.plan.listing()


def test_what_scopes_keep_lies_on_the_host():
    """Kept on the IPU are x and what came back, not what the host has made for itself, nor what it needs alone."""

    def stage(scope, x, labels):
        weights = tf.get_variable("v", initializer=np.full((WIDTH, UNITS), 0.1, np.float32))
        with scope():
            return tf.tanh(tf.tanh(tf.matmul(x, weights))), labels

    held = [
        train(scope, [stage, lambda scope, *given: last(here, *given)])[1]._session.job.program.stages[0].stash_bytes
        for scope in (scopes.outside_compilation_scope, here)
    ]
    assert held == [0, 4 * BATCH * (WIDTH + 2 * UNITS)]


def counted(function, *arrays):
    floats = [place for place, array in enumerate(arrays) if array.dtype.kind == "f"]
    return count_several(lambda *a: [function(*a)], arrays, floats, [0], weights=[], itemsize=4)


A, B = np.ones((2, 3), np.float32), np.ones(3, np.float32)


def crossed(calls):
    return [(each.sent_bytes, each.returned_bytes) for each in calls]


def test_arrays_cross_once_and_gradients_are_added_up_where_they_are():
    def function(a, b):
        with on_host("one"):
            c = a * b
            d = anp.sin(a) + c
        e = anp.exp(d) + c * d  # d and c back, once each
        with on_host("two"):
            return anp.sum(e * a * d)  # e out; a and d are there

    found = counted(function, A, B)
    assert crossed(found.forward_host_calls) == [(24 + 12, 48), (24, 4)]
    # The gradient of the sum out, that of e back; the IPU's parts of those of d and c out, those of a and b back.
    assert crossed(found.backward_host_calls) == [(4, 24), (48, 24 + 12)]


def test_what_a_trace_does_not_follow_goes_out_and_does_not_come_back():
    labels, table = np.array([1, 0], np.int32), np.arange(4, dtype=np.int32)

    def function(a, b, labels, table):
        with on_host("host"):
            best = anp.argmax(a, axis=1)
            picked = a[anp.arange(2), labels] + best
        return anp.sum(picked * b[0]) + table[0]

    found = counted(function, A, B, labels, table)
    assert crossed(found.forward_host_calls) == [(24 + 8, 8)]

    def halved(a):  # the gradient of a mean, which NumPy divides by a number of 8 bytes
        with on_host("host"):
            b = anp.tanh(a)
        return anp.mean(b)

    assert crossed(counted(halved, A).backward_host_calls) == [(24, 24)]

    def compared(a, b):
        with on_host("host"):
            c = a * 2.0
        return anp.sum(anp.where(c > 0, b, 0.0))

    assert crossed(counted(compared, A, B).forward_host_calls) == [(24, 24)]
    assert crossed(counted(lambda a: anp.sum(anp.ones(a.shape)) + 0 * anp.sum(a), A).forward_host_calls) == []


@st.composite
def programs(draw):
    """A function of two arrays as operations, each of earlier values, on the IPU or in one of some scopes."""
    steps, runs = [], draw(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), min_size=1, max_size=5))
    count = 2
    for number, (host, length) in enumerate(runs):
        for _ in range(length):
            operation = draw(st.sampled_from(("add", "multiply", "sin", "tanh", "sum")))
            steps.append((number if host else None, operation, *(draw(st.integers(0, count - 1)) for _ in "ab")))
            count += 1
    return steps, draw(st.integers(0, count - 1))


def run(program, a, b, scope=on_host):
    steps, end = program
    values = [a, b]
    for where, own in groupby(steps, key=lambda step: step[0]):
        with nullcontext() if where is None else scope(str(where)):
            for _, operation, one, other in own:
                x, y = values[one], values[other]
                match operation:
                    case "add" | "multiply":
                        values.append(getattr(anp, operation)(x, y))
                    case "sum":
                        values.append(anp.sum(x) + y)
                    case _:
                        values.append(getattr(anp, operation)(x))
    return anp.sum(values[end] * values[-1])


@settings(max_examples=share(60), deadline=None)
@given(programs())
def test_work_is_of_one_side_or_the_other_and_what_crosses_is_what_the_other_side_needs(program):
    """Against the sum of all work without scopes, and bytes told from the program's own text."""
    with_scopes = counted(lambda a, b: run(program, a, b), A, A)
    without = counted(lambda a, b: run(program, a, b, lambda name: nullcontext()), A, A)

    def vector(steps, calls):
        works = [*steps, *(work for each in calls for work in each.work)]
        return sum((work.vector for work in works), VectorWork())

    for side in ("forward", "backward"):
        total = vector(getattr(with_scopes, side), getattr(with_scopes, f"{side}_host_calls"))
        assert total == vector(getattr(without, side), ())
    assert not without.forward_host_calls + without.backward_host_calls
    steps, end = program
    made = {0: None, 1: None} | {place + 2: step[0] for place, step in enumerate(steps)}
    users = [(step[0], {*step[2:]} if step[1] in ("add", "multiply", "sum") else {step[2]}) for step in steps]
    users.append((None, {end, max(made)}))
    sent = {each for where, taken in users if where is not None for each in taken if made[each] is None}
    back = {each for where, taken in users if where is None for each in taken if made[each] is not None}
    assert sum(each.sent_bytes for each in with_scopes.forward_host_calls) == A.nbytes * len(sent)
    assert sum(each.returned_bytes for each in with_scopes.forward_host_calls) == A.nbytes * len(back)
    # Gradients come back for what went out, and go out for what came back, where there are any.
    assert sum(each.returned_bytes for each in with_scopes.backward_host_calls) <= A.nbytes * len(sent)
    assert sum(each.sent_bytes for each in with_scopes.backward_host_calls) <= A.nbytes * len(back)


def test_its_gradients_are_those_of_differences():
    def function(a, b):
        with on_host("host"):
            c = anp.tanh(a) * b
        return anp.sum(c * c + anp.exp(c))

    check_grads(function, modes=["rev"])(RNG.normal(size=(2, 3)), RNG.normal(size=3))


@pytest.mark.parametrize("shards", [1, 2])
def test_a_loop_has_its_scopes_also_where_it_is_cut(shards):
    found = []
    for scope in (scopes.outside_compilation_scope, here):
        tf.reset_default_graph()
        device(shards).configure_ipu_system()
        data = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH, drop_remainder=True).repeat()
        outfeed = IPUOutfeedQueue()

        def body(x, labels, scope=scope, outfeed=outfeed):
            with scopes.ipu_shard(0):
                x, labels = first(scope, x, labels)
            with scopes.ipu_shard(shards - 1):
                loss = last(scope, x, labels)
            return outfeed.enqueue(loss), GradientDescentOptimizer(0.1).minimize(loss)

        with recording(Recorder()) as recorder:
            loops.repeat(4, body, [], IPUInfeedQueue(data))
        found.append((outfeed.dequeue(), recorder.programs[0].job))
    (losses, job), (right, _) = found
    np.testing.assert_array_equal(losses, right)
    names = {key: [each.call.name for each in calls] for key, calls in job.costs.host_calls.items()}
    parts = [["outside", "again"], ["loss"]] if shards == 2 else [["outside", "again", "loss"]]
    assert names == {
        (kind, stage): own if kind != Pass.BACKWARD else own[::-1]
        for stage, own in enumerate(parts)
        for kind in (Pass.FORWARD, Pass.BACKWARD, Pass.RECOMPUTE)
    }


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
    path = tmp_path / "users.py"
    path.write_text(USERS)
    outs = {"output_types": [np.float32], "output_shapes": [(2, 3)]}
    given = {"library_path": str(path), "outs": outs, "op_name": "Twice"}
    host = counted(lambda a: custom_ops.cpu_user_operation([a], name="mine", **given)[0] * 1.0, A)
    on_ipu = counted(lambda a: custom_ops.precompiled_user_op([a], name="mine", **given)[0] * 1.0, A)
    for side, cycles in (("forward", 1000), ("backward", 3000)):
        (call,) = getattr(host, f"{side}_host_calls")
        assert (call.name, call.sent_bytes, call.returned_bytes) == ("mine", 24, 24)
        assert [work.cycles for work in call.work] == [cycles]
        assert not getattr(on_ipu, f"{side}_host_calls")
        assert len(getattr(on_ipu, side)) == len(getattr(host, side)) + 1

    def stage(scope, x, labels):
        x = tf.matmul(x, tf.get_variable("v", initializer=np.full((WIDTH, UNITS), 0.1, np.float32)))
        outs = {"output_types": [np.float32], "output_shapes": [(BATCH, UNITS)]}
        return custom_ops.cpu_user_operation([x], str(path), outs, op_name="Twice")[0], labels

    _, done = train(here, [stage, lambda scope, *given: last(here, *given)])
    host = done._session.job.costs.host_calls
    assert [host[kind, 0][0].compute for kind in (Pass.FORWARD, Pass.BACKWARD)] == [1000, 3000]


def test_untrained_variables_go_out_and_what_is_written_to_them_comes_back():
    def stage(scope, x, labels):
        mean = tf.get_variable("mean", initializer=np.zeros(UNITS, np.float32), trainable=False)
        x = tf.matmul(x, tf.get_variable("v", initializer=np.full((WIDTH, UNITS), 0.1, np.float32)))
        with scope():
            tf.assign(mean, 0.9 * mean + 0.1 * tf.reduce_mean(x, axis=0))
            y = x - mean
        return y, labels

    stages = [stage, lambda scope, *given: last(here, *given)]
    losses, done = train(scopes.outside_compilation_scope, stages)
    right, plain = train(here, stages)
    np.testing.assert_array_equal(losses, right)
    np.testing.assert_array_equal(done.variables["mean"], plain.variables["mean"])
    (call,) = [each.call for each in done._session.job.costs.host_calls[Pass.FORWARD, 0]]
    array, row = 4 * BATCH * UNITS, 4 * UNITS
    assert (call.sent_bytes, call.returned_bytes) == (array + row, array + row)


def test_a_keras_model_runs_the_layers_of_a_scope_on_the_host():
    def model(scope):
        inputs = keras.Input(shape=(WIDTH,))
        x = keras.layers.Dense(4)(inputs)
        with scope("host"):
            x = keras.layers.Dense(5, activation="tanh")(x)
        return keras.Model(inputs, keras.layers.Dense(1)(x))

    found = []
    for scope in (scopes.outside_compilation_scope, here):
        tf.reset_default_graph()
        config = device(1)
        config.configure_ipu_system()
        with IPUStrategy().scope():
            made = model(scope)
            made.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", steps_per_execution=4)
            found.append((made, made.fit(X, LABELS, batch_size=4, epochs=2, verbose=0).history["loss"]))
    assert found[0][1] == found[1][1]


def test_outside_of_programs_and_with_synthetic_data_nothing_goes_to_the_host(monkeypatch):
    with scopes.outside_compilation_scope():
        assert tf.tanh(np.float32(0.5)) == np.tanh(np.float32(0.5))
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data --synthetic_data_initializer=2")
    _, done = train(scopes.outside_compilation_scope)
    assert not done._session.job.costs.host_calls


def mine(array):
    with scopes.outside_compilation_scope("mine"):
        return array + 1.0


def test_what_is_priced_as_a_whole_has_no_scopes():
    words = "scope 'mine', whose operations run on the host, in {}, which runs on the IPU alone"
    with pytest.raises(ModelError, match=words.format("the layer python function 'mine'")):
        PythonLayer(mine, stated_cost=LayerCost(Work(), Work())).forward({}, A)
    with pytest.raises(ModelError, match=words.format("a vertex_expression")):
        custom_ops.codelet_expression_op(mine, A)

    class Own(GradientDescentOptimizer):
        def apply_gradients(self, pairs, *_, **__):
            return [mine(gradient) for gradient, _ in pairs]

    mapped = map_gradient_optimizer.MapGradientOptimizer(GradientDescentOptimizer(0.1), lambda g, _: mine(g))
    for optimizer, where in ((Own(0.1), "apply"), (mapped, "compute")):
        with pytest.raises(ModelError, match=words.format(f"{where}_gradients of an optimizer")):
            train(here, optimizer_function=lambda loss, own=optimizer: OptimizerFunctionOutput(own, loss))


def test_what_is_refused():
    with pytest.raises(ProgramTypeError, match="name: expected a text, got 3"), scopes.outside_compilation_scope(3):
        pass
    embedding = embedding_ops.create_host_embedding("rows", (4, 2), np.float32, optimizer_spec=None)

    def looks_up(x, labels):
        with scopes.outside_compilation_scope("mine"):
            return embedding.lookup(tf.cast(labels, np.int32)), labels

    def sums(x, labels):
        with scopes.outside_compilation_scope("mine"):
            return ops.cross_replica_ops.cross_replica_sum(x), labels

    for stage, words in (
        (looks_up, r"table 'rows' is looked up in scope 'mine', whose operations run on the host: its rows come to"),
        (sums, r"all_reduce of float32\[4, 3\] is called in scope 'mine', whose operations run on the host: replicas"),
    ):
        with pytest.raises(ModelError, match=words), embedding.register():
            train(
                here, [lambda scope, *given, stage=stage: stage(*given), lambda scope, x, labels: last(here, x, labels)]
            )
    _, done = train(scopes.outside_compilation_scope)
    with pytest.raises(UnsupportedProgramError, match="pipeline_stage_0 has the host compute 'outside', which a scena"):
        as_scenario(done._session.job)
