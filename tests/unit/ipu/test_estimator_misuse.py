"""Every argument of estimators, their configurations and hooks, with values that they do not take."""

import logging

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError, UnsupportedProgramError
from tests.effort import in_turn
from tests.programs import hosted_names
from tests.unit.ipu.test_misuse import TEXTS, VALUES, complaint, of

SECONDS = ("None", "0", "1", "1.5", "huge")
HOW_OFTEN = "every_n_iter and every_n_secs|^invalid every_n_iter|^Either every|^every_secs: |^every_steps: "
CALLED = "must be a tuple|must have two elements|must be callable"
#: TensorFlow 1, and the classes of Graphcore's estimators, while a test runs.
tf = IPUEstimator = IPUEstimatorSpec = IPUPipelineEstimator = IPUPipelineEstimatorSpec = None
IPURunConfig = RunConfig = IPULoggingTensorHook = None


@pytest.fixture(autouse=True)
def _names(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("tensorflow"), "disabled", True)
    with hosted_names(1) as names:
        found = {"tf": names.tf}
        for module, classes in (
            (names.ipu.ipu_estimator, "IPUEstimator IPUEstimatorSpec"),
            (names.ipu.ipu_pipeline_estimator, "IPUPipelineEstimator IPUPipelineEstimatorSpec"),
            (names.ipu.ipu_run_config, "IPURunConfig RunConfig"),
            (names.ipu.ipu_session_run_hooks, "IPULoggingTensorHook"),
        ):
            found |= {name: getattr(module, name) for name in classes.split()}
        globals().update(found)
        yield


def model_fn(features, labels, mode, params):
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(features * w))
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions=features * w)
    if mode == "eval":
        return IPUEstimatorSpec(mode, loss=loss, eval_metric_ops={"loss of one": tf.metrics.mean(loss)})
    return IPUEstimatorSpec(mode, loss=loss, train_op=tf.train.GradientDescentOptimizer(0.1).minimize(loss))


def data():
    return tf.data.Dataset.from_tensors((np.ones((2, 3), np.float32), np.ones(2, np.float32))).repeat()


def features():
    return tf.data.Dataset.from_tensors(np.ones((2, 3), np.float32)).repeat()


def made(model_dir="unused", **given):
    chosen = {"save_checkpoints_steps": None, "save_checkpoints_secs": None, "model_dir": str(model_dir)}
    return IPUEstimator(model_fn, config=RunConfig(**chosen, **given), params={})


def configurations():
    return [
        *of(
            IPURunConfig,
            {},
            iterations_per_loop=(("1",),),
            ipu_options=(("None",), "^ipu_options must be an IPUConfig instance"),
            compile_summary=(("False",), "^Generating compilation summaries"),
            num_replicas=(("1",),),
            num_shards=(("1",),),
            ordinal=(("0",), r"^Only 1 device\(s\) available"),
            prefetch_depth=(("None", "1"), "prefetch_depth"),
        ),
        *of(
            RunConfig,
            {},
            ipu_run_config=(("None",),),
            master=(("None", *TEXTS),),
        ),
    ]


def specs():
    return [
        *of(
            IPUEstimatorSpec,
            {"mode": lambda: "train", "loss": lambda: tf.constant(1.0), "train_op": tf.no_op},
            eval_metrics=(("None",), CALLED),
            host_call=(("None",), CALLED),
        ),
        *of(
            IPUPipelineEstimatorSpec,
            {
                "mode": lambda: "train",
                "computational_stages": lambda: [abs, abs],
                "gradient_accumulation_count": lambda: 4,
                "optimizer_function": lambda: abs,
            },
            computational_stages=(("empty list", "empty tuple", "list", "ragged"), "needs to be a list or a tuple"),
            gradient_accumulation_count=(("1",), "must contain `gradient_accumulation_count`"),
            optimizer_function=(("class", "function"), "must contain `optimizer_function` when training"),
            eval_metrics_fn=(("None", "class", "function"),),
            device_mapping=(("None", "empty list", "empty tuple", "list", "ragged"), "needs to be a list or a tuple"),
            accumulate_outfeed=((), "^The `accumulate_outfeed` pipeline keyword argument cannot be passed"),
        ),
    ]


def estimators():
    return [
        *of(
            IPUEstimator,
            {"model_fn": lambda: model_fn, "config": lambda: RunConfig(model_dir="m"), "params": dict},
            model_fn=((), "must include features argument"),
            config=((), "^`config` must be provided with type"),
            warm_start_from=(("None", *TEXTS),),
            train_batch_size=(("None", "1"), "must be positive"),
            eval_batch_size=(("None", "1"), "must be positive"),
            predict_batch_size=(("None", "1"), "must be positive"),
        ),
        *of(
            "train",
            lambda **given: made().train(**given),
            {"input_fn": lambda: data, "steps": lambda: 1},
            input_fn=((), "^input_fn must return Dataset"),
            steps=(("1",), "^One of `num_steps`|^Must specify steps > 0"),
            max_steps=(("None",), "^Can not provide both steps and max_steps"),
        ),
        *of(
            "train to the end",
            lambda **given: made().train(data, **given),
            {},
            max_steps=(("1",), "^One of `num_steps`|^Must specify max_steps > 0"),
        ),
        *of(
            "predict",
            lambda **given: next(made().predict(**given), None),
            {"input_fn": lambda: features, "num_predictions": lambda: 1},
            input_fn=((), "^input_fn must return Dataset"),
            predict_keys=(("None",), "^predict_keys argument is not valid"),
        ),
    ]


def hooks():
    return [
        *of(
            IPULoggingTensorHook,
            {},
            every_n_iter=(("1",), HOW_OFTEN),
            every_n_secs=(SECONDS[1:], HOW_OFTEN),
            at_end=(("True",), HOW_OFTEN),
        ),
        *of(
            "IPULoggingTensorHook at the end",
            IPULoggingTensorHook,
            {"at_end": lambda: True},
            formatter=(("None", "class", "function"),),
            logging_mode=((),),
            feed_name=(("None", *TEXTS),),
            replication_factor=(("None", "1"), "replication_factor"),
        ),
    ]


@pytest.mark.parametrize("group", [configurations, specs, estimators, hooks])
def test_what_an_argument_does_not_take_is_refused_by_name(group):
    wrong = {}
    for argument in group():
        for value in in_turn([*VALUES], argument.label + argument.name):
            tf.reset_default_graph()
            if told := complaint(argument, value):
                wrong[argument.label, argument.name, value] = told
    assert wrong == {}


def returning(spec, mode="train"):
    """Return a call that trains, or evaluates, with a model function that returns ``spec``."""

    def call(folder):
        found = IPUEstimator(lambda features, labels, mode: spec(mode), config=RunConfig(model_dir=str(folder)))
        return found.train(data, steps=1) if mode == "train" else found.evaluate(data, steps=1)

    return call


def pipelined(spec, mode="train", **run):
    def call(folder):
        config = RunConfig(IPURunConfig(**run), model_dir=str(folder))
        found = IPUPipelineEstimator(spec, config=config)
        return getattr(found, {"train": "train", "eval": "evaluate"}[mode])(data, steps=1)

    return call


def loss():
    return tf.constant(1.0)


CALLS = {
    "no spec": (returning(lambda mode: 3), "`model_fn` must return IPUEstimatorSpec or EstimatorSpec"),
    "no metrics": (
        returning(lambda mode: IPUEstimatorSpec(mode, loss=loss()), "eval"),
        "EstimatorSpec must contain either eval_metric_ops or eval_metrics when evaluating",
    ),
    "both metrics": (
        returning(
            lambda mode: IPUEstimatorSpec(
                mode, loss=loss(), eval_metric_ops={"a": tf.metrics.mean(loss())}, eval_metrics=(dict, [])
            ),
            "eval",
        ),
        "EstimatorSpec cannot contain both eval_metric_ops and eval_metrics",
    ),
    "labels that are not taken": (
        lambda folder: IPUEstimator(lambda features, mode: None, folder, RunConfig()).train(data, steps=1),
        "model_fn does not take labels, but input_fn returns labels.",
    ),
    "parameters that are not taken": (
        lambda folder: IPUEstimator(lambda features: None, folder, RunConfig(), {}),
        "does not include params argument, but params",
    ),
    "another argument": (
        lambda folder: IPUEstimator(lambda features, bogus: None, folder, RunConfig()),
        r"has following not expected args: \['bogus'\]",
    ),
    "a reserved parameter": (
        lambda folder: IPUEstimator(model_fn, folder, RunConfig(), {"input_fn": 1}),
        r"\['input_fn'\] are reserved keys but existed in params",
    ),
    "two batch sizes": (
        lambda folder: IPUEstimator(model_fn, folder, RunConfig(), {"batch_size": 1}, train_batch_size=1),
        "batch_size cannot be passed in params when a batch size argument is passed",
    ),
    "a batch size that is not taken": (
        lambda folder: IPUEstimator(model_fn, folder, RunConfig(), {}, train_batch_size=1).train(data, steps=1),
        r"input_fn must have params argument to receive params\['batch_size'\]",
    ),
    "a global step": (
        lambda folder: IPUEstimator(
            lambda features, labels, mode: IPUEstimatorSpec(
                mode,
                loss=(found := tf.reduce_mean(features * tf.get_variable("w", [3]))),
                train_op=tf.train.GradientDescentOptimizer(0.1).minimize(found, tf.train.get_global_step()),
            ),
            folder,
            RunConfig(),
        ).train(data, steps=1),
        "Illegal increment of the `global_step` variable in the `model_fn`. This is usually caused by",
    ),
    "steps between runs": (
        lambda folder: IPUEstimator(model_fn, folder, RunConfig(IPURunConfig(iterations_per_loop=4)), params={}).train(
            data, steps=6
        ),
        r"steps \(6\) must be a multiple of iterations_per_loop \(4\)",
    ),
    "listeners of nothing": (
        lambda folder: made(folder).train(data, steps=1, saving_listeners=[tf.estimator.CheckpointSaverListener()]),
        "There should be a CheckpointSaverHook to use saving_listeners",
    ),
    "three arrays": (
        lambda folder: made(folder).train(
            lambda: tf.data.Dataset.from_tensors((np.ones(2), np.ones(2), np.ones(2))), steps=1
        ),
        "Invalid dataset tuple, expected 1 or 2 elements, got 3",
    ),
    "several IPUs without a configuration": (
        lambda folder: IPURunConfig(num_shards=2),
        "IPU configuration requires more than one device, but `ipu_options` is None",
    ),
    "no such property": (lambda folder: RunConfig().replace(bogus=1), "Replacing bogus is not supported"),
    "both intervals": (
        lambda folder: RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1),
        "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.",
    ),
    "a warm start from nothing": (
        lambda folder: IPUEstimator(model_fn, folder, RunConfig(), {}, str(folder)).train(data, steps=1),
        "warm_start_from: expected a checkpoint, or a folder with one",
    ),
    "no stages": (pipelined(lambda mode: 3), "The `model_fn` used with `IPUPipelineEstimator` must return"),
    "features of a pipeline": (
        lambda folder: IPUPipelineEstimator(lambda features: None, folder, RunConfig()).train(data, steps=1),
        "must not have `features` or `labels` arguments. They are instead passed to the first pipeline stage",
    ),
    "too few IPUs": (
        pipelined(lambda mode: IPUPipelineEstimatorSpec(mode, [abs, abs], 4, optimizer_function=abs)),
        r"This pipeline requires 2 devices, but `IPURunConfig.num_shards` was set to 1 \(num_shards/2 <",
    ),
    "too few iterations": (
        pipelined(
            lambda mode: IPUPipelineEstimatorSpec(mode, [abs, abs], 4, optimizer_function=abs, device_mapping=[0, 0])
        ),
        r"`IPURunConfig.iterations_per_loop` \(got 1\) cannot be less than `gradient_accumulation_count` \(got 4\)",
    ),
    "a hook of nothing": (
        lambda folder: IPULoggingTensorHook(at_end=True).begin(),
        "This logging hook's outfeed was not enqueued. Did you forget to call the log function?",
    ),
    "both how often": (
        lambda folder: IPULoggingTensorHook(1, 1),
        "Cannot provide both every_n_iter and every_n_secs",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_does_not_go_together_is_refused_in_graphcores_words(case, tmp_path):
    call, text = CALLS[case]
    tf.reset_default_graph()
    with pytest.raises((ProgramError, ProgramTypeError, ProgramStateError, UnsupportedProgramError), match=text):
        call(tmp_path)
    tf.reset_default_graph()
