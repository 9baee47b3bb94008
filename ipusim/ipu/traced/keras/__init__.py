"""tf_keras models on simulated IPUs: steps are programs of the machine, tf_keras does everything else.

| module | content |
| --- | --- |
| ``captures`` | eager TensorFlow variables in a function's graph |
| ``step_tracer`` | traces a model's step, separating gradients and weight update |
| ``stages`` | layer calls of a model as functions of pipeline stages |
| ``rules`` | work of updates by tf_keras optimizers |
| ``steps`` | training, evaluation and prediction steps, traced for one batch shape |
| ``callbacks`` | callbacks for every step of an execution |
| ``execution`` | functions called by fit, evaluate and predict |

ipusim replaces only ``make_train_function``, ``make_test_function`` and ``make_predict_function`` of models placed
on IPUs. tf_keras runs epochs, data, callbacks, history, validation and saving.
"""
