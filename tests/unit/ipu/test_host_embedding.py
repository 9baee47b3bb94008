"""Graphcore's HostEmbedding: what is looked up, what is learned from it and when, and what that takes."""

from __future__ import annotations

import contextvars
import gc
import weakref
from contextlib import ExitStack

import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError
from ipusim.ipu import loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.embedding_ops import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from ipusim.timeline.kinds import SpanKind

TOKENS, WIDTH, BATCH, COUNT, RUNS = 20, 5, 4, 4, 3
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, TOKENS, (64, 3)).astype(np.int32)
LABELS = RNG.normal(size=(64, 1)).astype(np.float32)
TABLE = RNG.normal(size=(TOKENS, WIDTH)).astype(np.float32)


@pytest.fixture(autouse=True)
def forget():
    tf.reset_default_graph()


def train(lookup, embedding=None, *, schedule=PipelineSchedule.Grouped, recompute=False, replicas=1):
    """Return losses and the pipeline of two stages, the first of which gets its rows of ``lookup``."""
    config = IPUConfig()
    config.auto_select_ipus, config.allow_recompute = 2 * replicas, recompute
    data = tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(BATCH, drop_remainder=True).repeat()
    outfeed = IPUOutfeedQueue()

    def first(ids, labels):
        return tf.reshape(lookup(ids), [BATCH, 3 * WIDTH]), labels

    def last(x, labels):
        weights = tf.get_variable("w", initializer=np.full((3 * WIDTH, 1), 0.1, np.float32))
        return tf.reduce_mean((tf.matmul(x, weights) - labels) ** 2)

    with ExitStack() as stack:
        if embedding is not None:
            stack.enter_context(embedding.register())
        done = pipeline(
            [first, last],
            gradient_accumulation_count=COUNT,
            repeat_count=RUNS,
            infeed_queue=IPUInfeedQueue(data),
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(GradientDescentOptimizer(0.1), loss),
            pipeline_schedule=schedule,
            config=config,
        )
    return np.array(outfeed.dequeue()[0]), done


def on_ipu(ids):
    return tf.nn.embedding_lookup(tf.get_variable("table", initializer=TABLE), ids)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Interleaved])
def test_the_sum_of_a_weight_updates_gradients_learns_as_on_the_ipu(schedule, recompute):
    embedding = HostEmbedding("rows", TABLE, optimizer_spec=HostEmbeddingSGDGAOptimizerSpec(0.1, COUNT))
    mine, _ = train(embedding.lookup, embedding, schedule=schedule, recompute=recompute)
    other, done = train(on_ipu, schedule=schedule, recompute=recompute)
    np.testing.assert_allclose(mine, other, rtol=1e-5)
    np.testing.assert_allclose(embedding.get_embedding_tensor().numpy(), done.variables["table"], rtol=1e-5)


def by_hand(steps_behind):
    """Return the losses where each micro-batch's gradient is applied ``steps_behind`` micro-batches later."""
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


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_that_are_applied_at_once_are_seen_by_what_is_looked_up_behind_them(recompute):
    """In the sequential schedule each backward pass ends before the next forward pass begins."""
    embedding = HostEmbedding("rows", TABLE, optimizer_spec=HostEmbeddingOptimizerSpec(0.1))
    mine, _ = train(embedding.lookup, embedding, schedule=PipelineSchedule.Sequential, recompute=recompute)
    np.testing.assert_allclose(mine, by_hand(0), rtol=1e-4)


@pytest.mark.parametrize("recompute", [False, True])
def test_micro_batches_on_their_way_see_the_table_as_it_was_and_recompute_it_so(recompute):
    """Grouped has two micro-batches on their way between two stages when the gradient of the one before comes."""
    embedding = HostEmbedding("rows", TABLE, optimizer_spec=HostEmbeddingOptimizerSpec(0.1))
    mine, _ = train(embedding.lookup, embedding, recompute=recompute)
    np.testing.assert_allclose(mine, by_hand(2), rtol=1e-4)
    assert not np.allclose(mine, by_hand(0), rtol=1e-4)


def test_rows_and_gradients_cross_the_host_in_time():
    embedding = HostEmbedding("rows", TABLE, optimizer_spec=HostEmbeddingOptimizerSpec(0.1))
    _, done = train(embedding.lookup, embedding)
    timeline, ids, rows = done.timeline, BATCH * 3 * 4, BATCH * 3 * WIDTH * 4
    moved = timeline.bytes[timeline.rows(SpanKind.HOST_ROWS)]
    assert sorted(set(moved.tolist())) == [ids, rows, ids + rows]
    assert len(moved) == 3 * COUNT * RUNS
    plain = train(on_ipu)[1]
    assert done.program.stages[0].parameter_bytes == 0
    assert plain.program.stages[0].parameter_bytes == TABLE.nbytes
    assert "look-up 0.0" in done.plan.listing()


def test_a_table_that_does_not_learn():
    embedding = HostEmbedding("rows", TABLE)
    _, done = train(embedding.lookup)
    np.testing.assert_array_equal(embedding.get_embedding_tensor().numpy(), TABLE)
    moved = done.timeline.bytes[done.timeline.rows(SpanKind.HOST_ROWS)]
    assert set(moved.tolist()) == {BATCH * 3 * 4, BATCH * 3 * WIDTH * 4}


def test_two_look_ups_of_one_table_add_up():
    embedding = HostEmbedding("rows", TABLE, optimizer_spec=HostEmbeddingSGDGAOptimizerSpec(0.1, COUNT))

    def twice(ids):
        return embedding.lookup(ids) + 2 * embedding.lookup(ids[::-1])

    def twice_on_ipu(ids):
        table = tf.get_variable("table", initializer=TABLE)
        return tf.nn.embedding_lookup(table, ids) + 2 * tf.nn.embedding_lookup(table, ids[::-1])

    mine, _ = train(twice, embedding)
    other, _ = train(twice_on_ipu)
    np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_an_initializer_sets_the_table_again_and_a_program_begins_with_what_it_is_set_to():
    embedding = create_host_embedding(
        "rows", [TOKENS, WIDTH], tf.float32, optimizer_spec=HostEmbeddingOptimizerSpec(0.1), initializer="zeros"
    )
    variable = embedding.get_embedding_tensor()
    assert not variable.numpy().any()
    variable.set(TABLE)
    train(embedding.lookup, embedding)
    assert not np.allclose(variable.numpy(), TABLE)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert not session.run(variable).any()


def test_indices_are_clipped_or_refused():
    embedding = HostEmbedding("rows", TABLE)
    far = np.array([-3, 99], np.int32)
    np.testing.assert_array_equal(embedding.lookup(far), TABLE[[0, TOKENS - 1]])
    with pytest.raises(ProgramError, match=r"^indices: expected numbers from 0 to 19, as the table 'rows' has, got -3"):
        embedding.lookup(far, clip_indices=False)
    with pytest.raises(ProgramTypeError, match=r"^indices: expected whole numbers that depend on no variable, got "):
        embedding.lookup(np.ones(2))


def test_a_program_needs_a_registered_table():
    embedding = HostEmbedding("rows", TABLE, optimizer_spec=HostEmbeddingOptimizerSpec(0.1))
    with pytest.raises(Exception, match=r"inside `with embedding\.register\(session\):`"):
        train(embedding.lookup)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: HostEmbedding(1, TABLE), ProgramTypeError, "name"),
        (lambda: HostEmbedding("t", TABLE[0]), ProgramError, "embedding_tensor: expected a table of numbers of rank"),
        (lambda: HostEmbedding("t", IDS), ProgramError, "rank two and not int32"),
        (lambda: HostEmbedding("t", "table"), ProgramTypeError, "embedding_tensor"),
        (lambda: HostEmbedding("t", TABLE, "ROWS"), ProgramError, "partition_strategy: expected TOKEN or ENCODING"),
        (
            lambda: HostEmbedding("t", TABLE, "TOKEN", 0.1),
            ProgramTypeError,
            "optimizer_spec: expected a HostEmbeddingO",
        ),
        (lambda: HostEmbeddingOptimizerSpec("fast"), ProgramTypeError, "learning_rate"),
        (lambda: HostEmbeddingOptimizerSpec([0.1]), ProgramTypeError, "learning_rate: expected a number"),
        (lambda: HostEmbeddingSGDGAOptimizerSpec(0.1, 0), ProgramError, "accumulation_factor"),
        (lambda: create_host_embedding("t", [3, None], tf.float32), ProgramError, "must be fully defined"),
        (lambda: create_host_embedding("t", [3, 2], tf.int32), ProgramError, "dtype"),
    ],
)
def test_misuse(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_specifications_say_what_they_were_given():
    spec = HostEmbeddingSGDGAOptimizerSpec(0.5, 8)
    assert (spec.get_learning_rate(), spec.get_accumulation_factor()) == (0.5, 8)
    assert spec.create_slot_variables(None, "t") == []
    variable = HostEmbedding("t", TABLE).get_embedding_tensor()
    with pytest.raises(ModelError, match="outside of a pipeline stage"):
        spec.create_lookup_instruction(variable, np.array([3]), [], "TOKEN", "t")
    with pytest.raises(
        ProgramError, match=r"^embedding_tensor: expected the variable of a HostEmbedding, got 'table'$"
    ):
        spec.create_lookup_instruction("table", np.array([3]), [], "TOKEN", "t")


def test_a_table_that_nothing_holds_is_freed():
    def looked_up():
        embedding = HostEmbedding("freed", np.ones((8, 4), np.float32), "TOKEN")
        outfeed = IPUOutfeedQueue()
        loops.repeat(2, lambda: outfeed.enqueue(embedding.lookup(np.array([1, 2], np.int32))), [])
        return weakref.ref(embedding.get_embedding_tensor())

    variable = contextvars.copy_context().run(looked_up)
    tf.reset_default_graph()
    gc.collect()
    assert variable() is None
