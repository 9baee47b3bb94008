"""Graphcore's HostEmbedding: what is looked up, what is learned from it and when, and what that takes."""

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled
from tests.traced_training import Lazily, ipus, train

pytestmark = pytest.mark.usefixtures("tf")

TOKENS, WIDTH, BATCH, COUNT, RUNS = 20, 5, 4, 4, 3
ops = Lazily("embedding_ops")
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, TOKENS, (64, 3)).astype(np.int32)
LABELS = RNG.normal(size=(64, 1)).astype(np.float32)
TABLE = RNG.normal(size=(TOKENS, WIDTH)).astype(np.float32)


@pytest.fixture
def learn(tf):
    """Trains two stages, the first of which looks rows up in a table of the host, or of the IPU."""

    def call(spec=None, *, on_ipu=False, registered=True, twice=False, recompute=False, **options):
        v1 = tf.compat.v1

        def stages(stack):
            table = None if on_ipu else ops.HostEmbedding("rows", TABLE, optimizer_spec=spec)
            if table is not None and registered:
                stack.enter_context(table.register())

            def look_up(ids):
                return table.lookup(ids) if table else tf.gather(v1.get_variable("table", initializer=TABLE), ids)

            def first(ids, labels):
                rows = look_up(ids)
                with v1.variable_scope("", reuse=True):
                    rows = rows + 2 * look_up(ids[::-1]) if twice else rows
                return tf.reshape(rows, [BATCH, 3 * WIDTH]), labels

            def last(x, labels):
                weights = v1.get_variable("w", initializer=np.full((3 * WIDTH, 1), 0.1, np.float32))
                return tf.reduce_mean((tf.matmul(x, weights) - labels) ** 2)

            return [first, last]

        options = {"gradient_accumulation_count": COUNT, "repeat_count": RUNS, **options}
        return train(stages, [IDS, LABELS], batch=BATCH, device=ipus(2, allow_recompute=recompute), **options)

    return call


@sampled(2)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Interleaved])
def test_the_sum_of_a_weight_updates_gradients_learns_as_on_the_ipu(learn, schedule, recompute):
    """Over two runs of the session, the second of which goes on from the table of the first."""
    spec = ops.HostEmbeddingSGDGAOptimizerSpec(0.1, COUNT)
    mine = learn(spec, pipeline_schedule=schedule, recompute=recompute, runs=2)
    other = learn(on_ipu=True, pipeline_schedule=schedule, recompute=recompute, runs=2)
    np.testing.assert_allclose(mine.losses, other.losses, rtol=1e-5)
    np.testing.assert_allclose(mine.variables["rows"], other.variables["table"], rtol=1e-5)


def by_hand(steps_behind):
    """The losses where each micro-batch's gradient is applied ``steps_behind`` micro-batches later."""
    table, weights = TABLE.astype(np.float64), np.full((3 * WIDTH, 1), 0.1)
    losses, waiting, sums = [], [], np.zeros_like(weights)
    for step in range(RUNS * COUNT):
        if len(waiting) > steps_behind or (step % COUNT == 0 and waiting):
            for ids, gradient in waiting if step % COUNT == 0 else [waiting[0]]:
                np.subtract.at(table, ids, 0.1 * gradient)
            waiting = [] if step % COUNT == 0 else waiting[1:]
        if step % COUNT == 0:
            weights = weights - 0.1 * sums
            sums = np.zeros_like(weights)
        at = slice(step * BATCH % 64, step * BATCH % 64 + BATCH)
        x = table[IDS[at]].reshape(BATCH, -1)
        error = x @ weights - LABELS[at]
        losses.append((error**2).mean())
        back = 2 * error / BATCH
        sums += x.T @ back
        waiting.append((IDS[at], (back @ weights.T).reshape(BATCH, 3, WIDTH)))
    return losses


@sampled(2)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("schedule", "behind"), [(PipelineSchedule.Sequential, 0), (PipelineSchedule.Grouped, 2)])
def test_micro_batches_on_their_way_see_the_table_as_it_was_and_recompute_it_so(learn, schedule, behind, recompute):
    """In the sequential schedule none is on its way; grouped has two when the gradient of the one before comes."""
    spec = ops.HostEmbeddingOptimizerSpec(0.1)
    mine = learn(spec, pipeline_schedule=schedule, recompute=recompute)
    np.testing.assert_allclose(mine.losses, by_hand(behind), rtol=1e-4)
    assert not np.allclose(mine.losses, by_hand(2 - behind), rtol=1e-4)


def test_rows_and_gradients_cross_the_host_in_time(learn):
    done = learn(ops.HostEmbeddingOptimizerSpec(0.1))
    ids, rows = BATCH * 3 * 4, BATCH * 3 * WIDTH * 4
    moved = done.timeline.bytes[done.timeline.rows(SpanKind.HOST_ROWS)]
    assert sorted(set(moved.tolist())) == [ids, rows, ids + rows]
    assert len(moved) == 3 * COUNT * RUNS
    plain = learn(on_ipu=True)
    assert done.job.program.stages[0].parameter_bytes == 0
    assert plain.job.program.stages[0].parameter_bytes == TABLE.nbytes
    assert "look-up 0.0" in done.job.plan.listing()


def test_a_table_that_does_not_learn(learn):
    done = learn()
    np.testing.assert_array_equal(done.variables["rows"], TABLE)
    moved = done.timeline.bytes[done.timeline.rows(SpanKind.HOST_ROWS)]
    assert set(moved.tolist()) == {BATCH * 3 * 4, BATCH * 3 * WIDTH * 4}


def test_two_look_ups_of_one_table_add_up(learn):
    mine = learn(ops.HostEmbeddingSGDGAOptimizerSpec(0.1, COUNT), twice=True)
    np.testing.assert_allclose(mine.losses, learn(on_ipu=True, twice=True).losses, rtol=1e-5)


def test_a_program_needs_a_registered_table(learn):
    with pytest.raises(Exception, match=r"inside `with embedding\.register\(session\):`"):
        learn(ops.HostEmbeddingOptimizerSpec(0.1), registered=False)


def test_indices_are_clipped_or_refused(tf):
    from ipusim.ipu.ipu_compiler import compile  # noqa: PLC0415

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        embedding = ops.create_host_embedding("rows", [3, 2], tf.float32, initializer=tf.ones_initializer())
        far = tf.compat.v1.placeholder(tf.int32, [2])
        clipped, refused = (
            compile(lambda clip=clip: embedding.lookup(far, clip_indices=clip)) for clip in (True, False)
        )
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(clipped, {far: [-3, 99]})[0].tolist() == [[1, 1], [1, 1]]
        for given in (lambda: session.run(refused, {far: [2, 3]}), lambda: embedding.lookup([1, 3], False)):
            with pytest.raises(ProgramError, match=r"indices: expected numbers from 0 to 2, the rows of the .*, got 3"):
                given()
        with pytest.raises(ProgramTypeError, match=r"^indices: expected whole numbers that depend on no variable"):
            embedding.lookup(np.ones(2))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.HostEmbedding(1, TABLE), ProgramTypeError, "name"),
        (lambda: ops.HostEmbedding("t", TABLE[0]), ProgramError, "expected a table of numbers of rank"),
        (lambda: ops.HostEmbedding("t", IDS), ProgramError, "rank two and not int32"),
        (lambda: ops.HostEmbedding("t", "table"), ProgramTypeError, "embedding_tensor"),
        (lambda: ops.HostEmbedding("t", TABLE, "ROWS"), ProgramError, "partition_strategy: expected TOKEN or ENC"),
        (lambda: ops.HostEmbedding("t", TABLE, "TOKEN", 0.1), ProgramTypeError, "optimizer_spec: expected a Host"),
        (lambda: ops.HostEmbeddingOptimizerSpec("fast"), ProgramTypeError, "learning_rate"),
        (lambda: ops.HostEmbeddingOptimizerSpec([0.1]), ProgramTypeError, "learning_rate: expected a number"),
        (lambda: ops.HostEmbeddingSGDGAOptimizerSpec(0.1, 0), ProgramError, "accumulation_factor"),
        (lambda: ops.create_host_embedding("t", [3, 2], np.int32), ProgramError, "dtype"),
        (
            lambda: ops.HostEmbeddingOptimizerSpec(1).create_lookup_instruction("table", [3], [], "TOKEN", "t"),
            ProgramError,
            r"^embedding_tensor: expected the variable of a HostEmbedding, got 'table'$",
        ),
    ],
)
def test_misuse(tf, call, error, text):
    with tf.Graph().as_default(), pytest.raises(error, match=text):
        call()


def test_specifications_say_what_they_were_given():
    spec = ops.HostEmbeddingSGDGAOptimizerSpec(0.5, 8)
    assert (spec.get_learning_rate(), spec.get_accumulation_factor()) == (0.5, 8)
    assert spec.create_slot_variables(None, "t") == []
