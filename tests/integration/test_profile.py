"""A profile of programs: what it leaves in a folder, of which runs, and what it refuses."""

import contextvars
import gzip
import json
import threading

import numpy as np
import pytest

from ipusim import ipu
from ipusim.app.explain.explanation import explain
from ipusim.app.run_folder.opened import open_source
from ipusim.app.run_folder.report import picture_window, run_files
from ipusim.app.run_folder.stored import read_run
from ipusim.app.scenario import load_job
from ipusim.base.errors import OutputError, ProgramError, ProgramStateError, ProgramTypeError
from ipusim.runs.execute import execute
from ipusim.timeline.timeline import Span
from tests.cli.commands import leave_charts_out
from tests.effort import slowest
from tests.programs import hosted_names
from tests.trace_files import PerfettoReader

#: What a scenario of layers with arithmetic leaves.
FILES = {
    "scenario.yaml",
    "summary.json",
    "losses.csv",
    "weights.npz",
    "timeline.npz",
    "memory.npz",
    "trace.pftrace.gz",
    "trace.png",
    "trace.svg",
    "memory.png",
}
COUNT = 4
#: TensorFlow and Graphcore's package, as all programs of this module import them.
tf = operations = None


@pytest.fixture(scope="module", autouse=True)
def _without_charts():
    """Leave pictures empty, of which names alone are looked at, and lay none out."""
    with pytest.MonkeyPatch.context() as patch:
        leave_charts_out(patch)
        yield


@pytest.fixture(scope="module", autouse=True)
def _names():
    global tf, operations
    with hosted_names() as names:
        tf, operations = names.tf, names.ipu
        yield


def first(x, labels):
    with tf.variable_scope("net/hidden"):
        return tf.keras.layers.Dense(16, activation="relu")(x), labels


def last(x, labels):
    with tf.variable_scope("net/logits"):
        logits = tf.keras.layers.Dense(3)(x)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def compiled(stage=first, **changes):
    """Build a small pipeline that trains in the current graph; returns what runs it, behind what begins."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(24, 6)).astype(np.float32), rng.integers(3, size=24).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((x, labels)).batch(8, drop_remainder=True).repeat()
    infeed = operations.ipu_infeed_queue.IPUInfeedQueue(dataset)

    def learn(loss):
        return operations.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.1), loss)

    def network():
        given = {
            "gradient_accumulation_count": COUNT,
            "repeat_count": 2,
            "infeed_queue": infeed,
            "outfeed_queue": operations.ipu_outfeed_queue.IPUOutfeedQueue(),
            "optimizer_function": learn,
            "name": "small",
        }
        return operations.pipelining_ops.pipeline([stage, last], **given | changes)

    return operations.ipu_compiler.compile(network), infeed.initializer


def trained(stage=first, runs=1, **changes):
    """Run it so often in a session of its own; returns the values of its variables."""
    with tf.Graph().as_default(), tf.Session() as session:
        program, begin = compiled(stage, **changes)
        session.run([tf.global_variables_initializer(), begin])
        for _ in range(runs):
            session.run(program)
        variables = tf.global_variables()
        return {each.op.name: value for each, value in zip(variables, session.run(variables), strict=True)}


def files_of(folder):
    return {path.name for path in folder.iterdir() if path.name != ".ipusim"}


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Span._fields)


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Run two steps of the small pipeline in a profile; returns its folder, those that it names, and the variables."""
    folder = tmp_path_factory.mktemp("profile") / "run"
    with ipu.profile(folder, description="A small one.") as profile:
        variables = trained(runs=2)
    return folder, profile.folders, variables


def test_a_profile_is_a_run_folder_as_a_scenario_leaves_it(left):
    folder, folders, variables = left
    assert folders == (folder,)
    assert files_of(folder) == FILES
    stored = read_run(folder)
    assert (stored.timeline.info.name, stored.timeline.info.executions, stored.summary["steps"]) == ("small", 4, 2)
    np.testing.assert_array_equal(
        np.load(folder / "weights.npz")["net/hidden/dense/kernel"], variables["net/hidden/dense/kernel"]
    )
    rows = (folder / "losses.csv").read_text().splitlines()
    assert rows[0] == "step,execution,micro_batch,loss"
    assert [row.rpartition(",")[0] for row in rows[1:]] == [
        f"{execution // 2},{execution},{micro_batch}" for execution in range(4) for micro_batch in range(COUNT)
    ]


def test_its_scenario_has_its_layers_and_takes_its_time(left):
    """Two session runs follow each other as two steps do, and `explain` reads the folder as any."""
    folder, *_ = left
    twin = execute(load_job(folder / "scenario.yaml"))
    stored = read_run(folder).timeline
    assert same(stored, twin.timeline)
    assert stored.info.layers == twin.timeline.info.layers == ("hidden", "logits, softmax_cross_entropy")
    assert stored.info.stages == twin.timeline.info.stages == ("first", "last")
    assert (twin.learning is not None, twin.summary.steps) == (True, 2)
    said, other = json.loads((folder / "summary.json").read_text()), json.loads(json.dumps(twin.summary.to_dict()))
    assert said.keys() == other.keys()
    assert (said["description"], said["verdict"]) == ("A small one.", other["verdict"])
    assert run_files(twin, picture_window(twin.timeline), folder).keys() == FILES == files_of(folder)
    found = open_source(folder)
    assert explain(found.timeline, found.job).words()
    text = (folder / "scenario.yaml").read_text()
    assert "- {name: hidden, type: dense, units: 16, activation: relu}" in text
    assert "# Not carried over from the program: its data," in text


def test_traces_name_variable_scopes(left):
    folder, *_ = left
    reader = PerfettoReader(gzip.decompress((folder / "trace.pftrace.gz").read_bytes()))
    named = {(each.args["stage_name"], each.args["layers"]) for each in reader.slices if "layers" in each.args}
    assert named == {("first", "hidden"), ("last", "logits, softmax_cross_entropy")}


def more(x, labels):
    y, labels = first(x, labels)
    with tf.variable_scope("net/gain"):
        return y * tf.get_variable("g", [16], initializer=tf.ones_initializer()), labels


def normalised(x, labels):
    y, labels = first(x, labels)
    return tf.keras.layers.BatchNormalization(name="norm")(y, training=True), labels


@pytest.mark.parametrize(("stage", "named"), [(more, "hidden, gain"), (normalised, "hidden, norm")])
def test_scopes_are_named_where_stages_do_more_than_layers(tmp_path, stage, named):
    with ipu.profile(tmp_path):
        trained(stage)
    stored = read_run(tmp_path).timeline
    assert stored.info.layers == (named, "logits, softmax_cross_entropy")
    assert same(stored, execute(load_job(tmp_path / "scenario.yaml")).timeline)
    text = " ".join((tmp_path / "scenario.yaml").read_text().replace("# ", "").split())
    assert "its arithmetic. Each stage has only its cycles and bytes on this device" in text
    assert f"The scenario has costs in place of layers: stage '{stage.__name__}' calls " in text


@slowest
def test_each_of_several_programs_has_a_folder(tmp_path):
    (tmp_path / "summary.json").write_text("a stranger's")
    with ipu.profile(tmp_path / "run"):
        trained()
    with ipu.profile(tmp_path / "run") as profile:
        trained()
        trained(name="other/one")
        trained(optimizer_function=None)
    names = ["small", "other_one", "small_2"]
    assert profile.folders == tuple(tmp_path / "run" / name for name in names)
    assert files_of(tmp_path / "run") == set(names)  # what the first left is gone
    assert "losses.csv" not in files_of(tmp_path / "run" / "small_2")
    assert (tmp_path / "summary.json").read_text() == "a stranger's"


def test_only_so_many_session_runs_are_kept(tmp_path):
    with ipu.profile(tmp_path, steps=1) as profile:
        trained(runs=3)
    (run,) = profile.runs
    assert run.timeline.info.executions == 2
    assert run.summary.notes == ("The profile has the first 1 of 3 session runs.",)
    assert {loss.step for loss in run.learning.losses} == {0}


def test_what_runs_outside_is_not_in_it(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        before, begin = compiled()
        session.run([tf.global_variables_initializer(), begin])
        session.run(before)
        with ipu.profile(tmp_path) as profile:
            session.run(before)
        session.run(before)
    assert profile.runs[0].job.steps == 1


def test_a_program_of_the_block_counts_in_any_thread(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session, ipu.profile(tmp_path) as profile:
        training, begin = compiled()
        session.run([tf.global_variables_initializer(), begin])
        thread = threading.Thread(target=session.run, args=(training,))
        thread.start()
        thread.join()
    assert profile.runs[0].job.steps == 1


def test_threads_have_profiles_of_their_own(tmp_path):
    def work(name):
        with ipu.profile(tmp_path / name):
            trained(name=name)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [read_run(tmp_path / name).timeline.info.name for name in ("one", "two")] == ["one", "two"]


@pytest.mark.parametrize("flags", ["", "--use_synthetic_data", "--use_synthetic_data=true --log_cycle_count=0"])
def test_synthetic_data_do_not_travel(tmp_path, monkeypatch, flags):
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    with ipu.profile(tmp_path, synthetic=not flags) as profile:
        trained()
        utils = operations.utils
        assert all(map(utils.use_synthetic_data_for, utils.SyntheticDataCategory))
    (run,) = profile.runs
    assert (run.job.program.infeed.element_bytes, run.job.program.outfeed.element_bytes) == (0, 0)
    assert run.learning.losses
    assert "use_synthetic_data: true" in (tmp_path / "scenario.yaml").read_text()


def test_flags_without_effect_are_noted(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "TF_POPLAR_FLAGS", "--use_synthetic_data=false --executable_cache_path=/tmp/x --use_syntetic_data"
    )
    with ipu.profile(tmp_path) as profile:
        trained()
    assert profile.runs[0].job.program.infeed.element_bytes == 8 * 6 * 4 + 8 * 4
    assert profile.runs[0].summary.notes == (
        "TF_POPLAR_FLAGS: --executable_cache_path has no effect here: nothing is compiled to a graph.",
        "TF_POPLAR_FLAGS: --use_syntetic_data is no flag of Graphcore's TensorFlow; did you mean use_synthetic_data?; "
        "it has no effect.",
    )


def test_a_block_that_fails_leaves_nothing(tmp_path):
    def fail():
        trained()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), ipu.profile(tmp_path / "run"):
        fail()
    assert not (tmp_path / "run").exists()


def nested(folder):
    with ipu.profile(folder), ipu.profile(folder / "inner"):
        pass


def again(folder):
    profile = ipu.profile(folder)
    with profile:
        trained()
    with profile:
        pass


def nothing(folder):
    with ipu.profile(folder):
        pass


def not_run(folder):
    with ipu.profile(folder), tf.Graph().as_default():
        compiled()


def twice(folder):
    """Name the folder of a profile from elsewhere, too."""
    with ipu.profile(folder):
        contextvars.Context().run(nothing, folder)


EXPECTED = "expected a pipeline or a loop that runs on IPUs, got"


@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (
            nested,
            ProgramStateError,
            "profile: expected no profile inside another, got {}/inner inside {}, which also records the runs of the "
            "inner block",
        ),
        (
            again,
            ProgramStateError,
            "profile: expected a new profile for each block, got the profile of {} a second time",
        ),
        (nothing, ProgramStateError, f"the block of a profile: {EXPECTED} none"),
        (not_run, ProgramStateError, f"the block of a profile: {EXPECTED} 1 that no session has run"),
        (twice, OutputError, "{}: another run writes its results here; name another folder"),
        (lambda _: ipu.profile(3), ProgramTypeError, "folder: expected the name of a folder, got 3"),
        (lambda _: ipu.profile(""), ProgramTypeError, "folder: expected the name of a folder, got ''"),
        (
            lambda folder: ipu.profile(folder, 0),
            ProgramError,
            "steps: expected a whole number from 1 to 2147483647, got 0",
        ),
        (
            lambda folder: ipu.profile(folder, synthetic=1),
            ProgramTypeError,
            "synthetic: expected True or False, got 1",
        ),
    ],
)
def test_wrong_uses_are_told(tmp_path, action, kind, text, refused):
    folder = tmp_path / "run"
    refused(kind, text.format(folder, folder), lambda: action(folder))
