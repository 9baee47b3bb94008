"""Programs whose inputs have axes that are as long as what is fed: they are laid out for that, and go on."""

import numpy as np
import pytest

from ipusim.timeline.kinds import SpanKind
from tests.programs import configure, run

BATCHES = (3, 500, 3, 1)
W = np.linspace(-1, 1, 8).astype(np.float32).reshape(2, 4)


def data(batch, seed=0):
    return np.random.default_rng(seed + batch).normal(size=(batch, 2)).astype(np.float32)


@pytest.mark.parametrize("kind", ["loop", "pipeline"])
def test_a_program_is_laid_out_for_what_it_is_fed(names, kind):
    tf, ipu = names.tf, names.ipu
    configure(names, 1 if kind == "loop" else 2)
    x = tf.placeholder(tf.float32, [None, 2])
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.arange(1, 41, dtype=np.float32)))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def weights():
        return tf.get_variable("w", initializer=W)

    def loop(x):
        body = lambda total, x, one: (total + tf.matmul(x, weights()) * one, x)  # noqa: E731
        return ipu.loops.repeat(2, body, [tf.matmul(x, W) * 0, x], infeed)

    def pipeline(x):
        stages = [lambda x, one: x * one, lambda x: tf.matmul(x, weights())]
        return ipu.pipelining_ops.pipeline(stages, 4, inputs=[x], infeed_queue=infeed, outfeed_queue=outfeed)

    feeds = [{x: data(batch)} for batch in BATCHES]
    is_loop = kind == "loop"
    found = run(names, loop if is_loop else pipeline, None if is_loop else outfeed, [infeed], feeds, [x])
    if is_loop:
        last = 7 + 8  # elements of the fourth run
        np.testing.assert_allclose(found.results[0], data(1) @ W * last, rtol=1e-5)
        return
    for number, (batch, (sent,)) in enumerate(zip(BATCHES, found.sent, strict=True)):
        expected = [data(batch) @ W * (4 * number + place) for place in (1, 2, 3, 4)]
        np.testing.assert_allclose(sent, expected, rtol=1e-5, atol=1e-5)
    sent = found.timeline.rows(SpanKind.OUTFEED)
    assert set(found.timeline.bytes[sent].tolist()) == {1 * 4 * 4}


def test_a_program_runs_on_the_device_that_is_configured_when_it_runs(names):
    tf, ipu = names.tf, names.ipu
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones(4, np.float32)).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def network():
        return ipu.pipelining_ops.pipeline(
            [lambda x: x, lambda x: x + 1], 4, infeed_queue=infeed, outfeed_queue=outfeed
        )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        compiled = ipu.ipu_compiler.compile(network)
    dequeued = outfeed.dequeue()
    shapes = []
    with tf.Session() as session:
        session.run(infeed.initializer)
        for ipus in (2, 4):
            configure(names, ipus)
            session.run(compiled)
            (sent,) = session.run(dequeued)
            shapes.append(sent.shape)
    assert shapes == [(4, 4), (4, 2, 4)]  # two replicas on four IPUs
