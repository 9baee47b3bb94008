"""Sequences read without being told where their letters are: a GRU, and the loss and the search of CTC."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.ops import nn_ops, pipelining_ops, rnn_ops

STEPS, LETTERS, BLANK, BATCH_SIZE = 12, 4, 4, 8
COUNT, SAMPLES = 8, 512


def spoken(samples):
    """Words of two or three letters, each held for two to three time steps, with noise over all of it."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(2, 4, samples).astype(np.int32)
    words = rng.integers(0, LETTERS, (samples, 3)).astype(np.int32)
    sound = rng.normal(0, 0.3, (samples, STEPS, LETTERS)).astype(np.float32)
    for sample, (word, length) in enumerate(zip(words, lengths, strict=True)):
        at = 0
        for letter in word[:length]:
            held = rng.integers(2, 4)
            sound[sample, at : at + held, letter] += 2
            at += held + 1
    return sound, words, lengths


def listen(sound, words, lengths):
    outputs, _ = rnn_ops.PopnnGRU(24, name="ear")(tf.transpose(sound, [1, 0, 2]))
    return outputs, words, lengths


def read(outputs, words, lengths):
    with tf.variable_scope("letters"):
        kernel = tf.get_variable("kernel", [24, LETTERS + 1])
        logits = tf.tensordot(outputs, kernel, 1)
    times = np.full(BATCH_SIZE, STEPS, np.int32)
    loss = tf.reduce_mean(nn_ops.ctc_loss_v2(words, logits, lengths, times, BLANK))
    _, found, labels = nn_ops.ctc_beam_search_decoder(logits, times, beam_width=4, blank_index=BLANK)
    return loss, labels[:, 0, :3], found[:, 0], words, lengths


def optimizer_function(loss, *_):
    return pipelining_ops.OptimizerFunctionOutput(tf.train.AdamOptimizer(0.02), loss)


def model():
    return pipelining_ops.pipeline(
        computational_stages=[listen, read],
        gradient_accumulation_count=COUNT,
        repeat_count=SAMPLES // (COUNT * BATCH_SIZE),
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
        name="Sequences",
    )


dataset = tf.data.Dataset.from_tensor_slices(spoken(SAMPLES)).batch(BATCH_SIZE, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset, "infeed")
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue("outfeed")

cfg = config.IPUConfig()
cfg.auto_select_ipus = 2
config.configure_ipu_system(cfg)

with scopes.ipu_scope("/device:IPU:0"):
    compiled_model = ipu_compiler.compile(model)

outfeed_op = outfeed_queue.dequeue()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(infeed_queue.initializer)
    for epoch in range(6):
        session.run(compiled_model)
        losses, labels, found, words, lengths = session.run(outfeed_op)
        asked = np.arange(3) < lengths[..., None]
        right = (found == lengths) & (np.where(asked, labels == words, True).all(axis=-1))
        print(f"Epoch {epoch}: loss {np.mean(losses):.3f}, words read {np.mean(right):.0%}")
