"""Layers and losses as textbooks write them, in autograd's NumPy: what tests hold ipusim's own against."""

from __future__ import annotations

import math

import autograd.numpy as anp
import numpy as np


def attention(x, Wq, Wk, Wv, Wo, bq, bk, bv, bo, heads, causal):
    """Attention head by head, with slices of the kernels."""
    size = Wq.shape[1] // heads
    joined = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        q, k, v = (anp.einsum("btd,di->bti", x, W[:, part]) + b[part] for W, b in ((Wq, bq), (Wk, bk), (Wv, bv)))
        scores = anp.einsum("bti,bsi->bts", q, k) / math.sqrt(size)
        if causal:
            scores = scores - 1e30 * (1 - np.tri(x.shape[1]))
        scores = anp.exp(scores - anp.max(scores, axis=2, keepdims=True))
        joined.append(anp.einsum("bts,bsi->bti", scores / anp.sum(scores, axis=2, keepdims=True), v))
    return anp.einsum("bti,id->btd", anp.concatenate(joined, axis=2), Wo) + bo


def sigmoid(z):
    return 1 / (1 + anp.exp(-z))


def lstm(x, W, U, b):
    units, hs = U.shape[0], []
    h = c = np.zeros((x.shape[0], units))
    for t in range(x.shape[1]):
        z = anp.dot(x[:, t], W) + anp.dot(h, U) + b
        i, f, o = (sigmoid(z[:, n * units : (n + 1) * units]) for n in (0, 1, 3))
        c = f * c + i * anp.tanh(z[:, 2 * units : 3 * units])
        h = o * anp.tanh(c)
        hs.append(h)
    return anp.stack(hs, axis=1)


def gru(x, W, U, b, reset_after):
    units, hs = U.shape[0], []
    h = np.zeros((x.shape[0], units))
    for t in range(x.shape[1]):
        given = anp.dot(x[:, t], W) + (b[0] if reset_after else b)
        own = anp.dot(h, U[:, : 2 * units]) + (b[1, : 2 * units] if reset_after else 0)
        z = sigmoid(given[:, :units] + own[:, :units])
        r = sigmoid(given[:, units : 2 * units] + own[:, units:])
        if reset_after:
            inner = r * (anp.dot(h, U[:, 2 * units :]) + b[1, 2 * units :])
        else:
            inner = anp.dot(r * h, U[:, 2 * units :])
        h = z * h + (1 - z) * anp.tanh(given[:, 2 * units :] + inner)
        hs.append(h)
    return anp.stack(hs, axis=1)


def convolution(x, W, b):
    """Every place of the kernel over the whole image, which is padded to stay as large (TensorFlow's SAME)."""
    height, width = x.shape[1:3]
    before = [(size - 1) // 2 for size in W.shape[:2]]
    after = [size - 1 - first for size, first in zip(W.shape[:2], before, strict=True)]
    image = anp.pad(x, ((0, 0), (before[0], after[0]), (before[1], after[1]), (0, 0)), "constant")
    total = b
    for i, j in np.ndindex(*W.shape[:2]):
        total = total + anp.dot(image[:, i : i + height, j : j + width], W[i, j])
    return total


def layer_norm(x, gamma, beta, epsilon=1e-3):
    centred = x - anp.mean(x, axis=-1, keepdims=True)
    return centred / anp.sqrt(anp.mean(centred**2, axis=-1, keepdims=True) + epsilon) * gamma + beta


def cross_entropy(logits, labels):
    """The mean over the samples of -log softmax(logits)[label]."""
    shifted = logits - anp.max(logits, axis=1, keepdims=True)
    chosen = anp.sum(shifted * np.eye(logits.shape[1])[labels], axis=1)
    return anp.mean(anp.log(anp.sum(anp.exp(shifted), axis=1)) - chosen)


def cross_entropies(logits, labels, parts):
    """The cross entropy of each of so many equal parts of a batch."""
    size = len(labels) // parts
    return anp.array(
        [cross_entropy(logits[at : at + size], labels[at : at + size]) for at in range(0, len(labels), size)]
    )
