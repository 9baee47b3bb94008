"""Pipeline stages of Keras models, and their options: Graphcore's rules, in Graphcore's words."""

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras import extensions
from tests.keras_models import LateKeras
from tests.programs import needs_tensorflow

X = np.ones((64, 4), np.float32)
keras = LateKeras()


@pytest.fixture(autouse=True)
def _scope():
    needs_tensorflow()
    from ipusim.ipu.keras.placement import models_on_ipus  # noqa: PLC0415 - which imports TensorFlow

    keras.backend.clear_session()
    with models_on_ipus():
        yield


def sequential():
    layers = keras.layers
    return keras.Sequential([layers.Dense(2, name="a"), layers.Dense(2, name="b"), layers.Dense(1, name="c")])


def functional():
    layers = keras.layers
    x = keras.Input((4,), name="x")
    shared = layers.Dense(4, name="shared")
    return keras.Model(x, layers.Add(name="sum")([shared(shared(x)), x]))


def test_names_are_offered_where_graphcore_has_them():
    assert keras.ipu.PipelineStage is extensions.PipelineStage
    assert keras.ipu.extensions is extensions
    for name in extensions.__all__:
        if name.endswith("Assignment"):
            assert getattr(keras.ipu, name) is getattr(extensions, name)


def test_the_layers_of_a_sequential_model_are_assigned_by_numbers_or_one_by_one():
    model = sequential()
    before = model.get_pipeline_stage_assignment()
    assert [(each.layer.name, each.pipeline_stage) for each in before] == [("a", None), ("b", None), ("c", None)]
    model.set_pipeline_stage_assignment([0, 0, 1])
    found = model.get_pipeline_stage_assignment()
    assert [str(each) for each in found] == [
        f"Layer: {name} is assigned to pipeline stage: {stage}" for name, stage in (("a", 0), ("b", 0), ("c", 1))
    ]
    found[1].pipeline_stage = 1
    model.set_pipeline_stage_assignment(found)
    assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [0, 1, 1]
    model.reset_pipeline_stage_assignment()
    assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [None] * 3


def test_the_calls_of_a_functional_model_are_assigned_one_by_one(capsys):
    model = functional()
    found = model.get_pipeline_stage_assignment()
    assert [(each.layer.name, each.node_index) for each in found] == [("shared", 0), ("shared", 1), ("sum", 0)]
    assert found[0].inbound_layers.name == "x"
    assert [each.name for each in found[2].inbound_layers] == ["shared", "x"]
    for each, stage in zip(found, (0, 1, 1), strict=True):
        each.pipeline_stage = stage
    model.set_pipeline_stage_assignment(found)
    assert str(found[1]) == "Layer: shared (node index 1) is assigned to pipeline stage: 1"
    lines = []
    model.print_pipeline_stage_assignment_summary(line_length=50, print_fn=lines.append)
    assert lines == [
        'Model: "model"',
        "_" * 50,
        " Layer (type) (node inde  Input Layers  Pipeline",
        "=" * 50,
        " shared (Dense) (0)       x             0",
        "_" * 50,
        " shared (Dense) (1)       shared        1",
        "_" * 50,
        " sum (Add) (0)            shared        1",
        "                          x",
        "=" * 50,
    ]
    model.print_pipeline_stage_assignment_summary()
    assert capsys.readouterr().out.splitlines()[1] == "_" * 78


def subclass(call):
    class Late(keras.Model):
        def __init__(self):
            super().__init__()
            self.shared = keras.layers.Dense(4, name="shared")

        def call(self, x):
            return call(self.shared, x)

    return Late()


def test_the_calls_of_a_subclass_are_known_from_its_build_on(refused):
    model = subclass(lambda layer, x: layer(layer(x)))
    unknown = "The calls of layers in model 'late' are not known: call build() first"
    refused(ProgramError, unknown, model.get_pipeline_stage_assignment)
    model.build((2, 4))
    found = model.get_pipeline_stage_assignment()
    assert [(each.layer.name, each.node_index, each.pipeline_stage) for each in found] == [
        ("shared", 0, None),
        ("shared", 1, None),
    ]
    for stage, assignment in enumerate(found):
        assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(found)
    assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [0, 1]


def test_a_subclass_whose_call_reads_values_is_built_without_stages(refused):
    model = subclass(lambda layer, x: layer(x) if x.graph else x)
    model.build((2, 4))
    assert model.built
    reason = "call() cannot be called on symbolic tensors: 'KerasTensor' object has no attribute 'graph'"
    unknown = f"The calls of layers in model 'late' are not known: {reason}"
    refused(ProgramError, unknown, model.get_pipeline_stage_assignment)


def test_steps_of_an_execution_may_be_counted_by_tensorflow():
    model = sequential()
    steps = load().data.Dataset.range(60).cardinality() // 8
    model.compile(loss="mse", steps_per_execution=steps)
    assert int(model._steps_per_execution) == 7


def test_scopes_assign_layers_and_calls_and_a_call_goes_first():
    layers, x = keras.layers, keras.Input((4,))
    with keras.ipu.PipelineStage(0):
        first = layers.Dense(4)
        second = layers.Dense(4)
    h = first(x)
    with keras.ipu.PipelineStage(1):
        h = second(h)
    model = keras.Model(x, h)
    assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [0, 1]


def test_options_reach_the_pipeline_the_optimizer_and_the_queues():
    from ipusim.ipu.traced.keras.execution import placement_of  # noqa: PLC0415 - which imports TensorFlow

    model = sequential()
    model.set_pipeline_stage_assignment([0, 0, 1])
    model.set_pipelining_options(
        4, [1, 0], accumulate_outfeed=True, gradient_accumulation_reduction_method="mean", name="mine"
    )
    model.set_infeed_queue_options(prefetch_depth=7)
    model.set_outfeed_queue_options(buffer_depth=5)
    placement = placement_of(model)
    options = placement.request(2, 4, 1, kind="train")
    pipeline = options["pipeline"]
    assert (pipeline["device_mapping"], pipeline["accumulate_outfeed"]) == ([1, 0], True)
    assert (pipeline["reduction_method"], pipeline["gradient_accumulation_count"]) == ("MEAN", 4)
    assert (options["infeed"]["prefetch_depth"], placement.settings.buffer_depth) == (7, 5)
    model.reset_pipeline_stage_assignment()
    model.set_gradient_accumulation_options(2, offload_weight_update_variables=False)
    options = placement.request(1, placement.settings.accumulation, 1, kind="train")
    assert (options["pipeline"]["schedule"], options["pipeline"]["gradient_accumulation_count"]) == ("single", 2)
    assert options["pipeline"]["offload_weight_update_variables"] is False


def test_a_stage_assignment_of_other_layers_is_refused_when_it_runs(refused):
    model = sequential()
    model.set_pipeline_stage_assignment([0, 0, 1])
    model.set_pipelining_options(4)
    model.compile("sgd", "mse", steps_per_execution=4)
    model.add(keras.layers.Dense(1))
    refused(
        ProgramStateError,
        "The layers of the pipelined Sequential model have changed: you need to call "
        "`set_pipeline_stage_assignment()` before executing again.",
        lambda: model.fit(X, X[:, :1], batch_size=16, verbose=0),
    )


def _assigned(stages):
    def action():
        model = functional()
        found = model.get_pipeline_stage_assignment()
        for each, stage in zip(found, stages, strict=True):
            each.pipeline_stage = stage
        model.set_pipeline_stage_assignment(found)

    return action


def _twice():
    model = functional()
    first, _, third = model.get_pipeline_stage_assignment()
    first.pipeline_stage = third.pipeline_stage = 0
    model.set_pipeline_stage_assignment([first, first, third])


def _nested():
    with keras.ipu.PipelineStage(0), keras.ipu.PipelineStage(1):
        pass


def _half():
    x = keras.Input((4,))
    with keras.ipu.PipelineStage(0):
        h = keras.layers.Dense(4)(x)
    keras.Model(x, keras.layers.Dense(1, name="last")(h))


OF_PROGRAM_ERROR = [
    ("`pipeline_stage_assignment` needs to be a list", lambda: sequential().set_pipeline_stage_assignment((0, 0, 1))),
    (
        "The size of the provided `pipeline_stage_assignment` (2) does not match the number of layers in the model "
        "(currently 3). Each layer in a Sequential model needs to be assigned to a pipeline stage.",
        lambda: sequential().set_pipeline_stage_assignment([0, 1]),
    ),
    (
        "All elements of `pipeline_stage_assignment` need to be instances of either `int` or "
        "`SequentialLayerPipelineStageAssignment`.",
        lambda: sequential().set_pipeline_stage_assignment([0, "1", 2]),
    ),
    (
        "The first layer in a pipelined sequential model needs to be assigned to the 0th pipeline stage, however it "
        "was assigned to 1.",
        lambda: sequential().set_pipeline_stage_assignment([1, 1, 2]),
    ),
    (
        "Layer b has been assigned to pipeline stage 2, however the previous layer in the Sequential model was "
        "assigned to pipeline stage 0. A layer in a Sequential model can only be assigned to the same pipeline stage "
        "as the previous layer or to the next pipeline stage.",
        lambda: sequential().set_pipeline_stage_assignment([0, 2, 2]),
    ),
    (
        "Layer a has not been assigned a pipeline stage.",
        lambda: sequential().set_pipeline_stage_assignment(
            [extensions.SequentialLayerPipelineStageAssignment(keras.layers.Dense(1, name="a"))] * 3
        ),
    ),
    (
        "The provided assignment at index 0 `pipeline_stage_assignment` is for layer c, but the layer in the "
        "Sequential model at index 0 is a.",
        lambda: sequential().set_pipeline_stage_assignment(
            [extensions.SequentialLayerPipelineStageAssignment(keras.layers.Dense(1, name="c"), 0)] * 3
        ),
    ),
    ("Layer sum with node index 0 has not been assigned a pipeline stage.", _assigned((0, 0, None))),
    (
        "The size of the provided `pipeline_stage_assignment` (0) does not match the total number of invocations of "
        "layers in the model (currently 3). Each invocation of a layer in a model needs to be assigned to a pipeline "
        "stage (excluding input layers).",
        lambda: functional().set_pipeline_stage_assignment([]),
    ),
    (
        "All elements of `pipeline_stage_assignment` need to be instances of `FunctionalLayerPipelineStageAssignment`.",
        lambda: functional().set_pipeline_stage_assignment([0, 0, 1]),
    ),
    (
        "Duplicate assignment for layer shared with node index 0. Each layer invocation can only be assigned to a "
        "single pipeline stage.",
        _twice,
    ),
    (
        "Pipeline stages in the graph need to be strictly increasing, found pipeline stages 0, 2, however the "
        "following pipeline stages are missing 1.",
        _assigned((0, 0, 2)),
    ),
    (
        "Layer shared in pipeline stage 0 has a dependency from a pipeline stage which has not yet executed. Layers "
        "can only use outputs from current or previous pipeline stages.",
        _assigned((1, 0, 1)),
    ),
    (
        "All layers of a pipelined model must have an associated pipeline stage. However, last has not been assigned "
        "to one. Pipeline stages can be assigned when a layer is constructed, or each time a layer is called. "
        "Different pipeline stages can assigned to each call.",
        _half,
    ),
    ("PipelineStage: expected no other PipelineStage around it, got 1 in 0", _nested),
    (
        "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got 0 instead.",
        lambda: sequential().set_pipelining_options(0),
    ),
    (
        "Expected `device_mapping` to be a list of integers.",
        lambda: sequential().set_pipelining_options(device_mapping=["0"]),
    ),
    (
        "Found `gradient_accumulation_count` key in `pipelining_kwargs`. Set the "
        "`gradient_accumulation_steps_per_replica` argument to `set_pipelining_options` instead.",
        lambda: sequential().set_pipelining_options(gradient_accumulation_count=2),
    ),
    (
        "Found `reduction_method` key in `pipelining_kwargs`. Set the `gradient_accumulation_reduction_method` "
        "argument to `set_pipelining_options` instead.",
        lambda: sequential().set_pipelining_options(4, reduction_method="mean"),
    ),
    (
        "Found `reduction_method` key in `gradient_accumulation_optimizer_kwargs`. Set the "
        "`gradient_accumulation_reduction_method` argument to `set_gradient_accumulation_options` instead.",
        lambda: sequential().set_gradient_accumulation_options(4, reduction_method="mean"),
    ),
    (
        "Found `repeat_count` key in `pipelining_kwargs`. This argument is automatically set by Keras.",
        lambda: sequential().set_pipelining_options(repeat_count=2),
    ),
    (
        "Found `outfeed_loss` key in `pipelining_kwargs`. This argument is not compatible with Keras.",
        lambda: sequential().set_pipelining_options(outfeed_loss=True),
    ),
    (
        "Found `num_mini_batches` key in `gradient_accumulation_optimizer_kwargs`. Set the "
        "`gradient_accumulation_steps_per_replica` argument to `set_gradient_accumulation_options` instead.",
        lambda: sequential().set_gradient_accumulation_options(num_mini_batches=2),
    ),
    (
        "Found `opt` key in `gradient_accumulation_optimizer_kwargs`. This is not supported as the optimizer which the "
        "model has been compiled with is automatically wrapped.",
        lambda: sequential().set_gradient_accumulation_options(opt=None),
    ),
    (
        "Found `dataset` key in `kwargs`. This argument is automatically set by Keras.",
        lambda: sequential().set_infeed_queue_options(dataset=[]),
    ),
    (
        "Found `outfeed_mode` key in `kwargs`. This argument is not compatible with Keras.",
        lambda: sequential().set_outfeed_queue_options(outfeed_mode="LAST"),
    ),
]
OTHERS = [
    (
        ProgramTypeError,
        "set_pipelining_options: expected arguments of pipeline, got 'schedule'",
        lambda: sequential().set_pipelining_options(schedule=1),
    ),
    (
        ProgramTypeError,
        "asynchronous: expected True or False, got 1",
        lambda: sequential().set_asynchronous_callbacks(1),
    ),
    (
        UnsupportedProgramError,
        "export_for_ipu_serving: there is no compiled executable; save() keeps the model",
        lambda: sequential().export_for_ipu_serving("folder", 1),
    ),
]


@pytest.mark.parametrize(("kind", "text", "action"), [*((ProgramError, *case) for case in OF_PROGRAM_ERROR), *OTHERS])
def test_misuse(kind, text, action, refused):
    refused(kind, text, action)
