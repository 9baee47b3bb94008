"""Functions of TensorFlow 2 that a strategy runs on simulated IPUs: what they return, and where their data end.

What they learn is in tests/unit/ipu/test_function_loops.py.
"""

import pytest

from tests.programs import configure, hosted_names


@pytest.fixture
def names():
    with hosted_names(2) as found:
        configure(found, 1)
        yield found


def test_the_end_of_the_data_is_tensorflows_error(names):
    tf = names.tf

    @tf.function
    def summed(iterator, steps):
        total = 0.0
        for _ in tf.range(steps):
            total += next(iterator)
        return {"total": total, "steps": (steps,)}

    run, iterator = names.ipu.ipu_strategy.IPUStrategy().run, iter(tf.data.Dataset.from_tensor_slices([1.0, 2, 4, 8]))
    found = run(summed, [iterator, tf.constant(3)])
    assert (float(found["total"]), int(found["steps"][0])) == (7, 3)
    with pytest.raises(tf.errors.OutOfRangeError):
        run(summed, [iterator, tf.constant(3)])
