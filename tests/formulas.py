"""Layers and losses as textbooks write them, in autograd's NumPy, and points at which gradients differ.

Activations are a batch. They may also be several batches, on an axis before the batch's; the weights then have such an
axis too. Every formula counts axes from the end, so the gradients of several losses are found in one call.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive

from ipusim.model.layers.network import Network


@primitive
def tanh(z):
    """The derivative of autograd's own, 1 / cosh(z)^2, overflows where the hyperbolic tangent is 1 to the last bit."""
    return np.tanh(z)


# of a function of its own: the work of users' functions is counted by the derivative of autograd's
defvjp(tanh, lambda ans, z: lambda gradient: gradient * (1 - ans**2))


def dense(x, W, b):
    """The same product and sum at every step of sequences."""
    return anp.matmul(x, W[..., None, :, :]) + b[..., None, None, :]


def products(head, part, q, k):
    return anp.matmul(q, anp.swapaxes(k, -1, -2))


def attention(x, Wq, Wk, Wv, Wo, bq, bk, bv, bo, heads, causal, added=lambda head: 0, scored=products):
    """Attention head by head, with slices of the kernels; ``added`` gives what is added to a head's scores."""
    size = Wq.shape[-1] // heads
    joined = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        q, k, v = (dense(x, W[..., part], b[..., part]) for W, b in ((Wq, bq), (Wk, bk), (Wv, bv)))
        scores = scored(head, part, q, k) / math.sqrt(size) + added(head)
        if causal:
            scores = scores - 1e30 * (1 - np.tri(x.shape[-2]))
        scores = anp.exp(scores - anp.max(scores, axis=-1, keepdims=True))
        joined.append(anp.matmul(scores / anp.sum(scores, axis=-1, keepdims=True), v))
    return dense(anp.concatenate(joined, axis=-1), Wo, bo)


def relative_attention(x, Wq, Wk, Wv, Wo, bq, bk, bv, bo, Wp, content_bias, position_bias, heads, causal=False):
    """Attention head by head, each position against the keys of all and against where they stand."""
    steps, elements = x.shape[-2:]
    rates = [10_000 ** (-2 * (at // 2) / elements) for at in range(elements)]
    angles = np.array([[step * rate for rate in rates] for step in range(steps)])
    table = np.where(np.arange(elements) % 2 == 0, np.sin(angles), np.cos(angles))

    def scored(head, part, q, k):
        keys = anp.matmul(table, Wp[..., None, :, part])
        content = products(head, part, q + content_bias[..., None, None, head, :], k)
        return content + products(head, part, q + position_bias[..., None, None, head, :], keys)

    return attention(x, Wq, Wk, Wv, Wo, bq, bk, bv, bo, heads, causal, scored=scored)


def window_attention(x, *weights, heads, window, shift=0, causal=False):
    """Attention window by window of images; places that lie apart in the image but for its edges do not meet."""
    *projections, position_bias = weights
    height, width = x.shape[-3:-1]
    places, seen = [*np.ndindex(window, window)], {}
    chosen = [[(a - c + window - 1) * (2 * window - 1) + b - d + window - 1 for c, d in places] for a, b in places]
    for top, left in np.ndindex(height // window, width // window):
        at = [(top * window + a + shift, left * window + b + shift) for a, b in places]
        edges = [(a >= height, b >= width) for a, b in at]
        apart = np.array([[-1e30 * (one != other) for other in edges] for one in edges])
        at = [(a % height, b % width) for a, b in at]
        tokens = anp.stack([x[..., a, b, :] for a, b in at], axis=-2)
        bias = position_bias[..., np.array(chosen), :]
        y = attention(
            tokens,
            *projections,
            heads,
            causal,
            lambda head, bias=bias, apart=apart: bias[..., None, :, :, head] + apart,
        )
        seen |= {place: y[..., number, :] for number, place in enumerate(at)}
    return anp.stack([anp.stack([seen[a, b] for b in range(width)], axis=-2) for a in range(height)], axis=-3)


def space_to_depth(x, size):
    """Every place of the blocks in turn, as strided slices of the image side by side."""
    return anp.concatenate([x[..., a::size, b::size, :] for a, b in np.ndindex(size, size)], axis=-1)


def squeeze_excite(x, W, b, U, c, axes=(-3, -2)):
    """Channels of images times gates; in between the means of channels are tokens of sequences of one step."""
    means = anp.expand_dims(anp.mean(x, axis=axes), -2)
    gates = sigmoid(dense(tanh(dense(means, W, b)), U, c))
    return x * (gates if len(axes) == 1 else anp.expand_dims(gates, -2))


def sigmoid(z):
    return (1 + tanh(z / 2)) / 2


def lstm(x, W, U, b):
    units, hs = U.shape[-2], []
    h = c = np.zeros((*x.shape[:-2], units))
    for t in range(x.shape[-2]):
        z = anp.matmul(x[..., t, :], W) + anp.matmul(h, U) + b[..., None, :]
        i, f, o = (sigmoid(z[..., n * units : (n + 1) * units]) for n in (0, 1, 3))
        c = f * c + i * tanh(z[..., 2 * units : 3 * units])
        h = o * tanh(c)
        hs.append(h)
    return anp.stack(hs, axis=-2)


def gru(x, W, U, b, reset_after, attended=False, masked=False):
    """A step whose score is 1 takes the candidate alone; one behind a sequence's end leaves zeros."""
    units, hs = U.shape[-2], []
    mask, x = (x[..., -1:], x[..., :-1]) if masked else (np.ones((*x.shape[:-1], 1)), x)
    score, x = (x[..., -1:], x[..., :-1]) if attended else (np.zeros((*x.shape[:-1], 1)), x)
    h = np.zeros((*x.shape[:-2], units))
    b_given, b_own = (b[..., :1, :], b[..., 1:, :]) if reset_after else (b[..., None, :], np.zeros(3 * units))
    for t in range(x.shape[-2]):
        given = anp.matmul(x[..., t, :], W) + b_given
        own = anp.matmul(h, U[..., : 2 * units]) + b_own[..., : 2 * units]
        z = sigmoid(given[..., :units] + own[..., :units])
        r = sigmoid(given[..., units : 2 * units] + own[..., units:])
        if reset_after:
            inner = r * (anp.matmul(h, U[..., 2 * units :]) + b_own[..., 2 * units :])
        else:
            inner = anp.matmul(r * h, U[..., 2 * units :])
        z = z - score[..., t, :] * z
        h = mask[..., t, :] * (z * h + (1 - z) * tanh(given[..., 2 * units :] + inner))
        hs.append(h)
    return anp.stack(hs, axis=-2)


def glu(x):
    half = x.shape[-1] // 2
    return x[..., :half] * sigmoid(x[..., half:])


def convolution(x, W, b, groups=1):
    """Every place of the kernel over the whole image, which is padded to stay as large (TensorFlow's SAME).

    Of several groups each has its own part of the channels, and makes its own part of the filters.
    """
    if groups > 1:
        channels, filters = W.shape[-2], W.shape[-1] // groups
        parts = []
        for group in range(groups):
            own = slice(group * filters, (group + 1) * filters)
            given = x[..., group * channels : (group + 1) * channels]
            parts.append(convolution(given, W[..., own], b[..., own]))
        return anp.concatenate(parts, axis=-1)
    height, width = x.shape[-3:-1]
    before = [(size - 1) // 2 for size in W.shape[-4:-2]]
    after = [size - 1 - first for size, first in zip(W.shape[-4:-2], before, strict=True)]
    around = [(0, 0)] * (x.ndim - 3) + [(before[0], after[0]), (before[1], after[1]), (0, 0)]
    image = anp.pad(x, around, "constant")
    total = b[..., None, None, None, :]
    for i, j in np.ndindex(*W.shape[-4:-2]):
        part = image[..., i : i + height, j : j + width, :]
        total = total + anp.matmul(part, W[..., i, j, None, None, :, :])
    return total


def convolution_1d(x, W, b, groups=1):
    """As of images of one row."""
    return convolution(x[..., None, :, :], W[..., None, :, :, :], b, groups)[..., 0, :, :]


def transposed_convolution(x, W, b, strides):
    """Every place of the kernel times the whole image, each element of which lies where it reaches in a larger one.

    What lies beyond the image times the strides falls (TensorFlow's SAME).
    """
    total = b[..., None, None, None, :]
    for taps in np.ndindex(*W.shape[-4:-2]):
        down, across = (reached(*sizes) for sizes in zip(x.shape[-3:-1], W.shape[-4:-2], strides, taps, strict=True))
        part = anp.matmul(x, anp.swapaxes(W, -1, -2)[..., taps[0], taps[1], None, None, :, :])
        total = total + anp.einsum("ab,cd,...bdf->...acf", down, across, part)
    return total


def reached(size, kernel, stride, tap):
    """Return which of the places of a larger axis each element of an axis reaches with one place of the kernel."""
    places = np.zeros((size * stride, size))
    before = max(kernel - stride, 0) // 2
    for element in range(size):
        if 0 <= element * stride + tap - before < size * stride:
            places[element * stride + tap - before, element] = 1
    return places


def batch_norm(x, gamma, beta, epsilon=1e-3):
    """Of every channel of sequences, over the samples of a batch and their steps."""
    gamma, beta = (each[..., None, None, :] for each in (gamma, beta))
    centred = x - anp.mean(x, axis=(-3, -2), keepdims=True)
    return centred / anp.sqrt(anp.mean(centred**2, axis=(-3, -2), keepdims=True) + epsilon) * gamma + beta


def layer_norm(x, gamma, beta, epsilon=1e-3):
    """Of every step of sequences."""
    gamma, beta = (each[..., None, None, :] for each in (gamma, beta))
    centred = x - anp.mean(x, axis=-1, keepdims=True)
    return centred / anp.sqrt(anp.mean(centred**2, axis=-1, keepdims=True) + epsilon) * gamma + beta


def cross_entropy(logits, labels):
    """The mean over a batch's samples of -log softmax(logits)[label]."""
    shifted = logits - anp.max(logits, axis=-1, keepdims=True)
    chosen = anp.sum(shifted * np.eye(logits.shape[-1])[labels], axis=-1)
    return anp.mean(anp.log(anp.sum(anp.exp(shifted), axis=-1)) - chosen, axis=-1)


def losses_and_gradients(losses_of, weights, micro_batches):
    """Return the loss of each micro-batch by ``losses_of``, and its own gradients, first axis by first axis.

    ``losses_of`` gets for every micro-batch weights of its own: no gradient is a sum over several.
    """
    copies = {name: np.repeat(array[None], micro_batches, axis=0) for name, array in weights.items()}
    backward, losses = autograd.make_vjp(losses_of)(copies)
    return losses, backward(np.ones(micro_batches))


def rms_step(gradient, slots, rate, decay, momentum, epsilon, centered):
    """Return a step of RMSProp; ``slots`` are the last step, the mean square less one, and the mean gradient."""
    slots[1] = decay * slots[1] + (1 - decay) * (gradient**2 - 1)
    slots[2] = decay * slots[2] + (1 - decay) * gradient
    slots[0] = momentum * slots[0] + rate * gradient / np.sqrt(1 + slots[1] - centered * slots[2] ** 2 + epsilon)
    return slots[0]


def adagrad_step(gradient, slots, rate, initial_accumulator, epsilon):
    """Return a step of Adagrad; ``slots`` begin with the sum of squares less the first one."""
    slots[0] = slots[0] + gradient**2
    return rate * gradient / (np.sqrt(initial_accumulator + slots[0]) + epsilon)


def adadelta_step(gradient, slots, rate, rho, epsilon):
    """Return a step of Adadelta; ``slots`` begin with the mean squares of gradients and of updates."""
    slots[0] = rho * slots[0] + (1 - rho) * gradient**2
    update = np.sqrt((slots[1] + epsilon) / (slots[0] + epsilon)) * gradient
    slots[1] = rho * slots[1] + (1 - rho) * update**2
    return rate * update


def ftrl_weight(weight, gradient, slots, rate, initial_accumulator, l1, l2):
    """Return the weight that FTRL sets; ``slots`` begin with the sum of squares less the first one, and z."""
    before = np.sqrt(initial_accumulator + slots[0])
    slots[0] = slots[0] + gradient**2
    root = np.sqrt(initial_accumulator + slots[0])
    slots[1] = slots[1] + gradient - (root - before) / rate * weight
    return -np.sign(slots[1]) * np.maximum(np.abs(slots[1]) - l1, 0) / (root / rate + 2 * l2)


STEP = 1e-6
#: Zeros of both signs and ties of them, bounds, and corners of piecewise functions.
SPECIAL = (0.0, -0.0, 0.0, 0.0, 1.0, -1.0, 2.5, -2.5)
#: By how much the differences on both sides of a corner are apart at least.
CORNER = 1e-3


def with_special_points(array):
    """Return a copy whose first numbers are special, of each half of it; at least a half of all stays as it is."""
    found = np.array(array)
    first, second = np.array_split(found.reshape(-1), 2)
    for part in (first, second):
        count = min(len(SPECIAL), len(part) // 2)
        part[:count] = SPECIAL[:count]
    return found


def one_sided_differences(function, array, places=None):
    """Return the slopes of a function of an array, which it reads anew, below and above each of its elements.

    Or of those at some ``places``; others are NaN.
    """
    sides = np.full((2, *array.shape), np.nan)
    here = function()
    for at in np.ndindex(array.shape) if places is None else places:
        kept = array[at]
        for side, step in enumerate((-STEP, STEP)):
            array[at] = kept + step
            sides[(side, *at)] = (function() - here) / step
        array[at] = kept
    return sides


def assert_gradient(found, function, array, rtol=2e-6, atol=1e-8, label="", places=None):
    """Hold a gradient to central differences; at a corner, where these tell nothing, it lies between both slopes.

    A function that has a slope at a special point has it as its gradient there, and not half of it.
    Of an array of many elements some ``places`` may be looked at.
    """
    below, above = one_sided_differences(function, array, places)
    if places is not None:
        looked_at = np.zeros(array.shape, bool)
        for at in places:
            looked_at[at] = True
        found, below, above = found[looked_at], below[looked_at], above[looked_at]
    central = (below + above) / 2
    corner = np.abs(above - below) > CORNER * (1 + np.abs(central))
    np.testing.assert_allclose(found[~corner], central[~corner], rtol, atol, err_msg=label)
    least, most = np.minimum(below, above), np.maximum(below, above)
    assert np.all((found >= least - CORNER)[corner] & (found <= most + CORNER)[corner]), label


def split(network: Network, splits: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the layer names of each stage of ``network``, cut before each layer named in ``splits``."""
    cuts = [network.names.index(name) for name in splits]
    return tuple(network.names[start:end] for start, end in pairwise([0, *cuts, len(network.names)]))
