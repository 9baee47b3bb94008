"""Kernels that draw: bounds and moments of TensorFlow's distributions, and the same numbers for the same key."""

import numpy as np
import pytest

from tests.golden.graph.values import whole
from tests.programs import tensorflow

COUNT = 20_000
#: Inputs and attributes, bounds, mean and standard deviation, as TensorFlow documents each.
DRAWS = {
    "RandomUniform": ({"shape": whole(COUNT)}, {"dtype": np.float32}, (0, 1), 0.5, 12**-0.5),
    "RandomStandardNormal": ({"shape": whole(COUNT)}, {"dtype": np.float32}, (-9, 9), 0, 1),
    "TruncatedNormal": ({"shape": whole(COUNT)}, {"dtype": np.float32}, (-2, 2), 0, 0.8796),
    "RandomUniformInt": ({"shape": whole(COUNT), "minval": np.int32(3), "maxval": np.int32(7)}, {}, (3, 6), 4.5, 1.118),
    "Multinomial": (
        {"logits": np.log(np.array([[0.2, 0.3, 0.5]], np.float32)), "num_samples": COUNT},
        {},
        (0, 2),
        1.3,
        0.781,
    ),
    "RandomShuffle": (
        {"value": np.arange(COUNT, dtype=np.float32)},
        {},
        (0, COUNT - 1),
        (COUNT - 1) / 2,
        COUNT * 12**-0.5,
    ),
}
STATELESS = {
    "StatelessRandomUniformV2": (0, 1, 0.5, 12**-0.5),
    "StatelessRandomNormalV2": (-9, 9, 0, 1),
    "StatelessTruncatedNormalV2": (-2, 2, 0, 0.8796),
    "StatelessRandomUniformIntV2": (3, 6, 4.5, 1.118),
}
IN_GRAPHS = [
    *DRAWS,
    *STATELESS,
    "StatelessRandomGetKeyCounter",
    "StatelessRandomGetAlg",
    "StatelessRandomGetKeyCounterAlg",
    "LogUniformCandidateSampler",
    "ComputeAccidentalHits",
]


def _executable(build):
    """What a function of no arguments builds, as the interpreter runs it."""
    from ipusim.ipu.graph.executable import Executable  # noqa: PLC0415
    from ipusim.ipu.graph.reading import output_of, read_graph  # noqa: PLC0415

    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        fetched = build(tf)
    return Executable(read_graph(graph), [], [output_of(tensor) for tensor in fetched])


def _invocation(*key):
    from ipusim.ipu.graph.executable import Invocation  # noqa: PLC0415

    return Invocation({}, key)


def _check_moments(values, lowest, highest, mean, deviation):
    assert lowest <= values.min()
    assert values.max() <= highest
    assert abs(values.mean() - mean) < 4 * deviation / COUNT**0.5
    assert abs(values.std() - deviation) < 0.03 * deviation


@pytest.mark.parametrize("kind", DRAWS)
def test_draws_follow_their_distribution_and_their_key(kind):
    inputs, attributes, (lowest, highest), mean, deviation = DRAWS[kind]
    program = _executable(
        lambda tf: [getattr(tf.raw_ops, kind)(**inputs, **attributes, seed=1, seed2=number) for number in (2, 2, 3)]
    )
    first, same_seeds, other_seed = program.run(_invocation(1, 2), [])
    _check_moments(np.asarray(first), lowest, highest, mean, deviation)
    assert len({np.asarray(each).tobytes() for each in (first, same_seeds, other_seed)}) == 3
    again, *_ = program.run(_invocation(1, 2), [])
    other, *_ = program.run(_invocation(1, 3), [])
    np.testing.assert_array_equal(again, first)
    assert (np.asarray(other) != np.asarray(first)).any()


def test_a_draw_in_a_loop_differs_from_step_to_step():
    def build(tf):
        def body(step, numbers):
            return step + 1, tf.concat([numbers, tf.random.uniform([1])], 0)

        start = [0, tf.zeros([0])]
        shapes = [tf.TensorShape([]), tf.TensorShape([None])]
        return tf.while_loop(lambda step, _: step < 5, body, start, shape_invariants=shapes)[1:]

    (numbers,) = _executable(build).run(_invocation(1), [])
    assert len(set(numbers.tolist())) == 5


@pytest.mark.parametrize("kind", STATELESS)
def test_stateless_draws_follow_their_seed(kind):
    def build(tf):
        functions = {"Uniform": tf.random.stateless_uniform, "Normal": tf.random.stateless_normal}
        if kind.endswith("IntV2"):
            return [tf.random.stateless_uniform([COUNT], seed, 3, 7, tf.int32) for seed in ([1, 2], [1, 2], [1, 3])]
        function = functions.get(kind[15:-2], tf.random.stateless_truncated_normal)
        return [function([COUNT], seed) for seed in ([1, 2], [1, 2], [1, 3])]

    program = _executable(build)
    assert kind in {step.node.type for step in program.steps}
    first, same, other = program.run(_invocation(1), [])
    _check_moments(first, *STATELESS[kind])
    np.testing.assert_array_equal(same, first)
    assert (other != first).any()


def test_key_and_counter_come_of_the_seed():
    def build(tf):
        return [*tf.raw_ops.StatelessRandomGetKeyCounterAlg(seed=whole(1, 2)), tf.raw_ops.StatelessRandomGetAlg()]

    key, counter, *algorithms = _executable(build).run(_invocation(1), [])
    assert key.shape == (1,)
    assert counter.shape == (2,)
    assert algorithms == [1, 1]


@pytest.mark.parametrize("unique", [True, False])
def test_candidates_are_drawn_and_expected_as_tensorflow_expects_them(unique):
    """Of few classes: those that are drawn once at most differ; the expectations are TensorFlow's formula."""
    true, classes, count = np.array([[0, 3], [1, 7]], np.int64), 8, 4 if unique else 20_000

    def build(tf):
        options = {"num_true": 2, "num_sampled": count, "unique": unique, "range_max": classes, "seed": 1, "seed2": 2}
        return tf.raw_ops.LogUniformCandidateSampler(true_classes=true, **options)

    drawn, of_true, of_drawn = _executable(build).run(_invocation(1), [])
    share = np.log((np.arange(classes) + 2) / (np.arange(classes) + 1)) / np.log(classes + 1)
    if unique:
        assert len({*drawn.tolist()} & {*range(classes)}) == count
        tries = np.log1p(-of_true) / np.log1p(-share[true])
        np.testing.assert_allclose(tries, np.round(tries[0, 1]), rtol=1e-3)
        assert tries[0, 1] >= count
    else:
        np.testing.assert_allclose(np.bincount(drawn, minlength=classes) / count, share, atol=0.02)
        np.testing.assert_allclose(of_true, share[true] * count, rtol=1e-5)
    for place, own in np.argwhere(drawn[:, None] == true.reshape(-1)):
        np.testing.assert_allclose(of_drawn[place], of_true.reshape(-1)[own], rtol=1e-6)


def test_accidental_hits_are_those_of_tensorflow():
    true, drawn = np.array([[0, 3], [1, 7], [5, 5]], np.int64), np.array([3, 9, 5, 0], np.int64)

    def build(tf):
        return tf.raw_ops.ComputeAccidentalHits(true_classes=true, sampled_candidates=drawn, num_true=2)

    found = _executable(build).run(_invocation(1), [])
    expected = [each.numpy() for each in build(tensorflow())]
    order = np.lexsort((expected[1], expected[0]))
    own = np.lexsort((found[1], found[0]))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[own], other[order])
        assert one.dtype == other.dtype
