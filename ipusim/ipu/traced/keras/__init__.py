"""Models of tf_keras on simulated IPUs: their steps are programs of the machine, all else is tf_keras' own.

| module | content |
| --- | --- |
| ``captures`` | variables of eager TensorFlow in the graph of a function |
| ``step_tracer`` | traces a model's step, with gradients and weight update apart |
| ``stages`` | the calls of a model's layers as functions of pipeline stages |
| ``rules`` | prices of updates of tf_keras' optimizers |
| ``steps`` | the steps of training, evaluation and prediction, traced for one form of a batch |
| ``callbacks`` | callbacks of every step of an execution |
| ``execution`` | the functions that fit, evaluate and predict call |

``make_train_function``, ``make_test_function`` and ``make_predict_function`` are all that is replaced, of models that
are placed on IPUs. Loops over epochs, data, callbacks, history, validation, saving are tf_keras' own.
"""
