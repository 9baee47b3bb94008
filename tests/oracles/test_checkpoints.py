"""Recomputation from checkpoints inside the backward pass: the same numbers, less alive at a time, and its cost."""

import gc
import weakref

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.model.stages.bound_stage import BoundStage
from ipusim.model.stages.stash import saved_arrays
from ipusim.pricing.passes import pass_cycles
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.keras_models import layers_of, stage_of
from tests.oracles.test_same_timeline import FED, amounts, in_program, same_timeline
from tests.scenarios import SCENARIOS

ONE_MICRO_BATCH = (
    "pipeline.schedule=sequential",
    "pipeline.repeat_count=1",
    "steps=1",
    "pipeline.gradient_accumulation_count=1",
)
INLINE = "pipeline.allow_recompute=true", "pipeline.recomputation_mode=RecomputeAndBackpropagateInterleaved"
SCENARIO = """
system: {name: m2000}
data: {type: synthetic, shape: [6], classes: 3, samples: 96, hold_out: 16}
model:
  layers:
    - {name: first, type: activation, activation: tanh}
    - {name: a, type: dense, units: 40, activation: tanh}
    - {name: drop, type: dropout, rate: 0.3}
    - {name: b, type: dense, units: 30, activation: relu}
    - {name: c, type: dense, units: 20, activation: sigmoid}
    - {name: d, type: dense, units: 10, activation: tanh}
    - {name: e, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {splits: [d], micro_batch_size: 4, gradient_accumulation_count: 8, repeat_count: 2}
optimizer: {type: momentum, learning_rate: 0.1, momentum: 0.5}
precision: float64
evaluate: {every: 1}
steps: 2
"""


@pytest.fixture
def load(load):
    return lambda *changes: load(SCENARIO, *changes)


def at(*layers):
    return f"pipeline.recomputation_checkpoints=[{', '.join(layers)}]"


@pytest.fixture
def forwards(monkeypatch):
    """The layers that forward passes run, in order, stage by stage."""
    seen = []
    plain = BoundStage.forward

    def forward(self, x, labels, key=None):
        seen.append([bound.name for bound in self._layers] + ([self._loss.name] if self._loss else []))
        return plain(self, x, labels, key)

    monkeypatch.setattr(BoundStage, "forward", forward)
    return seen


def test_clusters_run_again_from_the_last_to_the_first(load, forwards):
    experiment = load(*ONE_MICRO_BATCH, *INLINE, at("drop", "b", "d"))
    forwards.clear()  # of measuring the stash
    execute(experiment)
    assert forwards == [
        *(["first", "a", "drop"], ["b"], ["c"], ["d"], ["e", "cel"]),  # forward
        ["d"],  # the last stage keeps what is behind its checkpoint
        *(["c"], ["b"], ["first", "a", "drop"]),
    ]


@pytest.mark.parametrize("splits", ["[]", "[d]"])
def test_one_cluster_is_alive_at_a_time(load, monkeypatch, splits):
    changes = ("pipeline.schedule=single",) if splits == "[]" else ("pipeline.schedule=sequential",)
    experiment = load(*ONE_MICRO_BATCH[1:], *changes, f"pipeline.splits={splits}", *INLINE, at("a", "b", "c", "e"))
    plain, known, alive = BoundStage.forward, [], []
    gc.collect()
    gc.freeze()  # what was there before is not looked through at each pass

    def forward(self, x, labels, key=None):
        gc.collect()
        alive.append(sum(ref() is not None for ref in known))
        output, saved = plain(self, x, labels, key)
        inputs = {id(x), *(id(array) for array in (output if isinstance(output, tuple) else (output,)))}
        parameters = {name: array for bound in self._layers for name, array in bound.parameters.items()}
        mine = [array for array in saved_arrays(saved, parameters) if id(array) not in inputs and array is not labels]
        known[:] = [ref for ref in known if ref() is not None] + [weakref.ref(array) for array in mine]
        return output, saved

    monkeypatch.setattr(BoundStage, "forward", forward)
    execute(experiment)
    assert len(alive) > 8
    assert not any(alive), "activations of another cluster are still there"


def test_what_runs_again_is_paid_for(load):
    plain = load("pipeline.schedule=sequential").program.stages
    experiment = load("pipeline.schedule=sequential", *INLINE, at("drop", "b", "d"))
    timeline, ipu = execute(experiment).timeline, experiment.system.ipu
    added = [pass_cycles(plain[0].forward, ipu), pass_cycles(plain[1].forward[:1], ipu)]
    for stage in range(2):
        rows = (timeline.kind == SpanKind.BACKWARD) & (timeline.stage == stage)
        (length,) = set((timeline.end[rows] - timeline.start[rows]).tolist())
        assert length == pass_cycles(plain[stage].backward, ipu) + added[stage]
    assert not len(timeline.rows(SpanKind.RECOMPUTE))


def test_clusters_before_the_first_parameters_are_not_computed_again(load, forwards):
    experiment = load(*ONE_MICRO_BATCH, *INLINE, at("first"))
    forwards.clear()
    execute(experiment)
    assert forwards == [["first"], ["a", "drop", "b", "c"], ["d", "e", "cel"], ["a", "drop", "b", "c"]]
    plain = load("pipeline.schedule=sequential").program.stages[0].forward
    assert experiment.program.stages[0].recompute == plain[1:]


def test_what_is_kept_and_what_is_alive(load):
    """4 samples of float64: the input of 6 and the values of 40 and 30 are kept, besides labels on their way."""
    profile = load(*INLINE, at("drop", "b")).program.stages[0]
    labels = 4 * 4
    assert profile.input_bytes == 4 * 6 * 8 + labels
    assert profile.checkpoint_bytes == profile.input_bytes + 4 * (40 + 30) * 8
    assert profile.cluster_bytes < profile.stash_bytes
    without = execute(load(*INLINE)).memory.footprint.stages[0]
    with_them = execute(load(*INLINE, at("drop", "b"))).memory.footprint.stages[0]
    assert with_them.kept_bytes - without.kept_bytes == 4 * 70 * 8
    assert without.backward_bytes - with_them.backward_bytes == profile.stash_bytes - profile.cluster_bytes


def test_the_last_stage_keeps_what_is_behind_its_last_checkpoint(load):
    """Its input of 20, and the stash of e and the loss: e's input of 10, the shares of 3, and labels."""
    experiment = load(*INLINE, at("d"))
    profile = experiment.program.stages[1]
    labels = 4 * 4
    tail = profile.checkpoint_bytes - 4 * 20 * 8
    assert 4 * (10 + 3) * 8 + labels <= tail <= 4 * (10 + 2 * 3) * 8 + labels
    assert tail + 4 * 20 * 8 <= load().program.stages[1].stash_bytes
    held = execute(experiment).memory.footprint.stages[1]
    assert held.kept_bytes == profile.checkpoint_bytes
    none = execute(load(*INLINE)).memory.footprint.stages[1]
    assert none.kept_bytes == load().program.stages[1].stash_bytes


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("pipeline.allow_recompute=true",),
        ("pipeline.allow_recompute=true", "pipeline.recomputation_mode=RecomputeThenBackpropagate"),
        ("pipeline.recomputation_mode=RecomputeAndBackpropagateInterleaved",),
    ],
)
def test_in_the_other_mode_they_have_no_effect(load, changes):
    plain, with_them = load(*changes), load(*changes, at("b"))
    assert plain.program == with_them.program
    (note,) = with_them.notes
    assert note.startswith("recomputation_checkpoints will have no effect since activations are not recomputed")
    assert not plain.notes


@pytest.mark.parametrize("layers", [("c",), ("e",)])
def test_the_output_of_a_stage_is_no_checkpoint(load, layers):
    """c's output leaves its stage; e's is followed by the loss in its own."""
    with_them = load(*INLINE, at(*layers)).program
    assert (with_them == load(*INLINE).program) is (layers == ("c",))


LAYERS = "(the layers are first, a, drop, b, c, d, e)"


@pytest.mark.parametrize(
    ("changes", "key", "text"),
    [
        ((at("a", "dropp"),), ".1", f"expected the name of a layer, got 'dropp'; did you mean drop? {LAYERS}"),
        ((at("a", "cel"),), ".1", f"expected the name of a layer, got 'cel' {LAYERS}"),
        (
            ("pipeline.cycles=[{forward: 10}, {forward: 10}]", at("a")),
            "",
            "expected no checkpoints in stages with given cycles, got checkpoints",
        ),
    ],
    ids=["near a layer", "the loss", "given cycles"],
)
def test_what_is_no_checkpoint(load, changes, key, text):
    with pytest.raises(ScenarioError) as caught:
        load(*changes)
    (problem,) = caught.value.problems
    assert problem.key == f"pipeline.recomputation_checkpoints{key}"
    assert problem.text.startswith(text)


#: Another model, as PopART compiles it: layers that repeat.
REPEATED = (
    "system.host={framework: popart}",
    "model.layers=[{name: first, type: dense, units: 12}, {repeat: 3, layers: ["
    "{name: wide, type: dense, units: 40, activation: tanh}, {repeat: 2, layers: ["
    "{name: drop, type: dropout, rate: 0.3}, {name: narrow, type: dense, units: 12, activation: tanh}]}]}, "
    "{name: e, type: dense, units: 3}, {name: cel, type: softmax_cross_entropy}]",
    "pipeline={splits: [wide2], micro_batch_size: 4, gradient_accumulation_count: 8, allow_recompute: true}",
)
#: What another repetition follows: of the inner layers the first, of the outer ones all but the third.
FOLLOWED = "narrow0_0", "narrow0_1", "narrow1_0", "narrow1_1", "narrow2_0"


@pytest.mark.parametrize("framework", ["popart", "pytorch"])
def test_what_popart_compiles_keeps_what_each_layer_but_the_last_puts_out(load, framework):
    """Its own programs do, and it computes again inside of the backward pass whatever they keep."""
    own = load(*REPEATED, f"system.host.framework={framework}")
    said = load(*REPEATED, "system.host.framework=null", *INLINE, at(*FOLLOWED))
    assert own.program.stages == said.program.stages
    assert own.plan.shape.recompute_inline
    none = load(*REPEATED, "system.host.framework=null", *INLINE).program.stages
    assert load(*REPEATED, at()).program.stages == none != own.program.stages
    assert not own.notes
    learnt, plain = execute(own).learning, execute(load(*REPEATED, "pipeline.allow_recompute=false")).learning
    assert learnt.losses == plain.losses


@pytest.mark.parametrize("framework", ["tensorflow1", "tensorflow2", "null"])
def test_what_tensorflow_compiles_keeps_its_stages_inputs_alone(load, framework):
    own = load(*REPEATED, f"system.host.framework={framework}")
    assert own.plan.shape.recompute
    assert own.program.stages == load(*REPEATED, "system.host.framework=null").program.stages


def test_a_mode_that_is_asked_for_or_the_only_one_of_a_schedule_holds_on_popart_too(load):
    then = "pipeline.recomputation_mode=RecomputeThenBackpropagate"
    assert load(*REPEATED, then).plan.shape.recompute
    assert load(*REPEATED, "pipeline.schedule=interleaved").plan.shape.recompute


def test_a_model_with_skip_connections_keeps_no_layers_on_popart(load):
    added = [each.replace("{name: e,", "{name: sum, type: add, from: first}, {name: e,") for each in REPEATED]
    inside = load(*added, "system.host.framework=null", *INLINE).program.stages
    assert load(*added).program.stages == inside


#: Layers of the digits' training as programs have them, in two stages.
OF_PROGRAM = ("pipeline.splits=[dense64]", "pipeline.schedule=sequential", *FED, *INLINE)


@pytest.fixture
def in_two_stages(names):
    """Run the digits' training as a program and as its scenario, with checkpoints behind some layers."""

    def run(*checkpoints):
        job = load_job(SCENARIOS / "digits_training.yaml", [*OF_PROGRAM, at(*checkpoints)])
        names.tf.reset_default_graph()
        drawn = {"kernel_initializer": names.tf.keras.initializers.glorot_uniform(seed=1)}

        def stage(layers):
            def function(x, labels):
                for layer in layers:
                    more = drawn if layer["type"] == "dense" else {}
                    x = stage_of([layer | more], labelled=False)(x, labels)
                    if layer["name"] in checkpoints:
                        x = names.ipu.pipelining_ops.recomputation_checkpoint(x)
                return x if layers[-1]["type"] == "softmax_cross_entropy" else (x, labels)

            return function

        layers = layers_of(job)
        return in_program(names, job, [stage(layers[:3]), stage(layers[3:])]), execute(job)

    return run


def test_a_program_computes_again_from_its_checkpoints_as_its_scenario_does(in_two_stages):
    """The same spans and memory; and losses bit by bit as without checkpoints."""
    plain, (found, twin) = in_two_stages(), in_two_stages("dense256", "dense64")
    np.testing.assert_array_equal(found.sent, plain[0].sent)
    for program, scenario in (plain, (found, twin)):
        same_timeline(program.timeline, scenario.timeline.expanded(), training=True)
    mine, other = (
        [(amounts(stage.recompute), stage.checkpoint_bytes, stage.cluster_bytes) for stage in job.program.stages]
        for job in (found.job, twin.job)
    )
    assert mine[0] == other[0]
    assert mine[1][0] == other[1][0]
    # The last stage keeps less of its loss, and so more is alive beside that.
    assert sum(mine[1][1:]) == sum(other[1][1:])
