"""Effects of an estimator's arguments that no other test looks for."""

import numpy as np
import pytest

from tests.programs import hosted_names

#: TensorFlow 1 and Graphcore's package, while a test runs.
tf = ipu = None


@pytest.fixture(autouse=True)
def _names():
    global tf, ipu
    with hosted_names(1) as names:
        tf, ipu = names.tf, names.ipu
        yield


def counted():
    """Return a hook that counts its sessions."""

    class Counted(tf.estimator.SessionRunHook):
        began = 0

        def begin(self):
            self.began += 1

    return Counted()


def rows():
    return tf.data.Dataset.from_tensors((np.ones((2, 1), np.float32), np.zeros((2, 1), np.float32))).repeat(12)


def hooks_of(hook):
    return {"training_hooks": [hook], "evaluation_hooks": [hook], "prediction_hooks": [hook]} if hook else {}


def loop_model(hook):
    def model_fn(features, labels, mode, params):
        y = features * tf.get_variable("w", [1], initializer=tf.ones_initializer())
        loss = None if labels is None else tf.reduce_mean((y - labels) ** 2)
        return ipu.ipu_estimator.IPUEstimatorSpec(
            mode,
            predictions=y,
            loss=loss,
            eval_metric_ops={"last": (loss, loss)} if mode == "eval" else None,
            train_op=tf.train.GradientDescentOptimizer(0.1).minimize(loss) if mode == "train" else None,
            **hooks_of(hook),
        )

    return model_fn


def pipeline_model(hook):
    def model_fn(mode, params):
        def first(features, labels=None):
            y = features * tf.get_variable("w", [1], initializer=tf.ones_initializer())
            return y if labels is None else (y, labels)

        return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            mode,
            [first, lambda y, labels=None: y if labels is None else tf.reduce_mean((y - labels) ** 2)],
            gradient_accumulation_count=4,
            eval_metrics_fn=lambda loss: {"loss": tf.reduce_mean(loss)},
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                tf.train.GradientDescentOptimizer(0.1), loss
            ),
            **hooks_of(hook),
            **params,
        )

    return model_fn


def estimator(kind, tmp_path, hook=None, **arguments):
    shards = 2 if kind == "pipeline" else 1
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = shards
    run = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=4, num_shards=shards, ipu_options=options)
    config = ipu.ipu_run_config.RunConfig(run)
    model = (pipeline_model if kind == "pipeline" else loop_model)(hook)
    made = ipu.ipu_pipeline_estimator.IPUPipelineEstimator if kind == "pipeline" else ipu.ipu_estimator.IPUEstimator
    return made(model, **{"model_dir": str(tmp_path / "model"), "config": config, "params": {}} | arguments)


def features():
    return tf.data.Dataset.from_tensors(np.ones((2, 1), np.float32)).repeat(12)


@pytest.mark.parametrize("kind", ["loop", "pipeline"])
def test_calls_take_hooks_and_a_checkpoint_and_an_evaluation_its_own_folder(kind, tmp_path):
    of_calls, of_model = counted(), counted()
    own = estimator(kind, tmp_path, of_model)
    own.train(rows, steps=4, hooks=[of_calls])
    early = own.latest_checkpoint()
    own.train(rows, steps=4)
    late = own.latest_checkpoint()
    assert own.get_variable_names() == ["global_step", "w"]
    assert (of_calls.began, of_model.began) == (1, 2)
    hooks = {"hooks": [of_calls]}
    losses = [own.evaluate(rows, steps=4, checkpoint_path=path, name="mine", **hooks)["loss"] for path in (early, late)]
    assert (of_calls.began, of_model.began) == (3, 4)
    values = [next(own.predict(features, checkpoint_path=path, **hooks)).item() for path in (early, late)]
    assert (of_calls.began, of_model.began) == (5, 6)
    assert losses[0] > losses[1]
    assert values[0] > values[1] == own.get_variable_value("w").item()
    assert [str(path) for path in (tmp_path / "model").glob("eval*")] == [own.eval_dir("mine")]
    assert callable(own.model_fn)


def test_an_estimator_says_how_large_a_batch_of_predictions_is(tmp_path):
    def batches(params):
        return tf.data.Dataset.from_tensors(np.ones((params["batch_size"], 1), np.float32)).repeat(12)

    own = estimator("loop", tmp_path, predict_batch_size=3)
    assert np.shape(next(own.predict(batches, yield_single_examples=False))) == (3, 1)


def test_an_estimators_queue_prefetches_as_deep_as_it_is_asked_to(tmp_path, monkeypatch):
    from ipusim.ipu import loops  # noqa: PLC0415 - which imports TensorFlow

    depths, add = [], loops.add_loop

    def added(iterations, body, options, **arguments):
        depths.append(options()["infeed"]["prefetch_depth"])
        return add(iterations, body, options, **arguments)

    monkeypatch.setattr(loops, "add_loop", added)
    run = ipu.ipu_run_config.IPURunConfig(prefetch_depth=3)
    estimator("loop", tmp_path, config=ipu.ipu_run_config.RunConfig(run)).train(rows, steps=1)
    assert depths == [3]


def test_the_losses_of_an_estimator_are_summed_up_in_the_type_that_is_asked_for(tmp_path, monkeypatch):
    from ipusim.ipu import ipu_pipeline_estimator  # noqa: PLC0415 - which imports TensorFlow

    dtypes, pipeline = [], ipu_pipeline_estimator.pipelining_ops.pipeline

    def run(accumulate_outfeed_dtype, **arguments):
        dtypes.append(accumulate_outfeed_dtype)
        return pipeline(accumulate_outfeed_dtype=accumulate_outfeed_dtype, **arguments)

    monkeypatch.setattr(ipu_pipeline_estimator.pipelining_ops, "pipeline", run)
    estimator("pipeline", tmp_path, params={"loss_accumulator_dtype": np.float64}).train(rows, steps=4)
    assert dtypes == [np.float64]


def test_stages_of_an_estimator_are_where_they_are_mapped(tmp_path):
    own = estimator("pipeline", tmp_path, params={"device_mapping": [0, 0]})
    with pytest.raises(ValueError, match="requires 1 devices"):
        own.train(rows, steps=4)
