"""Graphcore's optimizers on tensors of the host, outside of any program: their gradients and updates, in a session."""

import numpy as np

from tests.programs import hosted_names


def test_the_example_of_graphcores_documentation_in_a_session():
    with hosted_names(1) as names:
        tf = names.tf
        one, two, three = every = [
            tf.Variable([number], name=f"v{place}") for place, number in enumerate((1.0, 2.0, 3.0))
        ]
        optimizer = names.ipu.optimizers.MapGradientOptimizer(
            tf.train.GradientDescentOptimizer(0.1), lambda grad, var: grad + 0.01 * var
        )
        pairs = optimizer.compute_gradients(one * two + one * three + two * three, every)
        update = optimizer.apply_gradients(pairs)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            gradients = session.run([gradient for gradient, _ in pairs])
            session.run(update)
            changed = session.run(every)
    np.testing.assert_allclose(np.ravel(gradients), [5.01, 4.02, 3.03], rtol=1e-6)
    np.testing.assert_allclose(np.ravel(changed), [1 - 0.501, 2 - 0.402, 3 - 0.303], rtol=1e-6)
