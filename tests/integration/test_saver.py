"""Checkpoints of programs that a session runs: the same bits from each, and what is wrong with others, by text."""

from __future__ import annotations

import contextvars
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import OutputError, ProgramError, ProgramTypeError
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.tensorflow.keras import layers
from tests.effort import runs_slowest, sampled

RNG = np.random.default_rng(3)
X = RNG.normal(size=(12, 4, 6)).astype(np.float32)
Y = RNG.normal(size=(12, 4, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def _own_context():
    """Programs that are compiled belong to their context: each test has one of its own."""
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def in_context(function):
    """Call a function in a context of its own, as another process has one."""
    return contextvars.copy_context().run(function)


class Counting(tf.train.Optimizer):
    """An optimizer that keeps something of its own for each variable, made in its first update."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        for _, variable in (pairs := list(grads_and_vars)):
            variable.state.setdefault(f"{variable.name}/seen", np.zeros((), np.float32))
        super().apply_gradients(pairs, global_step, name)
        for _, variable in pairs:
            variable.state[f"{variable.name}/seen"] += 1
            variable.assign_sub(variable.state[f"{variable.name}/seen"] * np.float32(0.001))


OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.01),
    "momentum": lambda: tf.train.MomentumOptimizer(0.01, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "lamb": lambda: ipu.optimizers.LAMBOptimizer(0.01) if hasattr(ipu.optimizers, "LAMBOptimizer") else None,
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.01),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(1.0),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.01, l1_regularization_strength=0.01),
    "one's own": lambda: Counting(tf.train.AdamOptimizer(0.01).rule),
}


class Training:
    """A program of two stages with dropout, a moving mean and a count of its micro-batches."""

    def __init__(self, optimizer="adam", width=5, late=False, dataset=None, repeat_count=2):
        self.outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        source = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12).repeat() if dataset is None else dataset
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(source)
        self.initializer = infeed.initializer

        def dense(x):
            with tf.variable_scope("a"):
                return layers.Dense(width, activation=tf.nn.relu)(x)

        def normal(h):
            with tf.variable_scope("a"):
                return tf.nn.dropout(layers.BatchNormalization()(h, training=True), rate=0.3)

        def first(x, labels):
            return (dense(x) if late else normal(dense(x))), labels

        def last(h, labels):
            h = normal(h) if late else h
            with tf.variable_scope("b"):
                return tf.reduce_mean(tf.square(layers.Dense(2)(h) - labels))

        def learn(loss):
            return ipu.pipelining_ops.OptimizerFunctionOutput(OPTIMIZERS[optimizer](), loss)

        def model():
            return ipu.pipelining_ops.pipeline(
                [first, last],
                4,
                repeat_count=repeat_count,
                infeed_queue=infeed,
                outfeed_queue=self.outfeed,
                optimizer_function=learn,
            )

        self.run = ipu.ipu_compiler.compile(model)

    def losses(self, session, runs=1):
        """Return the losses of so many runs."""
        session.run(self.initializer)
        found = []
        for _ in range(runs):
            session.run(self.run)
            found.append(session.run(self.outfeed.dequeue())[0])
        return np.concatenate(found)


@sampled(2)
@pytest.mark.parametrize("optimizer", [name for name, make in OPTIMIZERS.items() if make() is not None])
def test_every_checkpoint_goes_on_to_the_same_bits(optimizer, tmp_path):
    runs = 3 if runs_slowest() else 2

    def whole():
        training, session = Training(optimizer), tf.Session()
        saver = tf.train.Saver(max_to_keep=None)
        found = []
        for step in range(runs):
            saver.save(session, tmp_path / "model", global_step=step)
            found.append(training.losses(session))
        saver.save(session, tmp_path / "last")
        return np.concatenate(found)

    expected = in_context(whole)
    for step in range(runs):

        def part(step=step):
            training, session = Training(optimizer), tf.Session()
            session.run(tf.global_variables_initializer())
            tf.train.Saver().restore(session, str(tmp_path / f"model-{step}"))
            found = training.losses(session, runs - step)
            tf.train.Saver().save(session, tmp_path / f"from {step}")
            return found

        np.testing.assert_array_equal(in_context(part), expected[step * 8 :])
        assert (tmp_path / f"from {step}.npz").read_bytes() == (tmp_path / "last.npz").read_bytes()


def test_a_checkpoint_of_another_split_goes_on_as_it(tmp_path):
    """Variables, optimizer and draws have names that do not depend on the stages; rounding does."""

    def one():
        training, session = Training(), tf.Session()
        training.losses(session)
        tf.train.Saver().save(session, tmp_path / "model")

    def other(late):
        training, session = Training(late=late), tf.Session()
        tf.train.Saver().restore(session, tmp_path / "model")
        return training.losses(session, 2)

    in_context(one)
    assert {name for name, _ in tf.train.list_variables(str(tmp_path / "model"))} >= {
        "optimizer/b/dense_1/kernel/m",
        "optimizer/b/dense_1/kernel/step",
        "a/batch_normalization/moving_mean",
    }
    np.testing.assert_allclose(in_context(lambda: other(False)), in_context(lambda: other(True)), rtol=1e-5)


def test_two_runs_are_one_that_is_as_long():
    """Draws go on from run to run, as the dataset does."""
    one = in_context(lambda: Training(repeat_count=4).losses(tf.Session()))
    np.testing.assert_array_equal(in_context(lambda: Training(repeat_count=2).losses(tf.Session(), 2)), one)


def test_an_initializer_begins_anew_after_a_restore(tmp_path):
    training, session = Training(), tf.Session()
    saver = tf.train.Saver()
    before = compiled()[0].arrays()
    training.losses(session)
    saver.save(session, tmp_path / "model")
    session.run(tf.global_variables_initializer())
    saver.restore(session, tmp_path / "model")
    session.run(tf.global_variables_initializer())
    after = compiled()[0].arrays()
    assert {name for name in before if before[name].tobytes() != after[name].tobytes()} == {"ipusim/infeed"}


def test_variables_of_the_host_are_saved_and_those_that_are_named_alone(tmp_path):
    counter = tf.Variable(7, name="counter", trainable=False)
    step = tf.train.get_or_create_global_step()
    session = tf.Session()
    tf.train.Saver().save(session, tmp_path / "all", global_step=step)
    tf.train.Saver([counter]).save(session, tmp_path / "one")
    assert tf.train.list_variables(tmp_path / "all-0") == [("counter", []), ("global_step", [])]
    assert tf.train.list_variables(tmp_path / "one") == [("counter", [])]
    counter.set(np.array(9, np.int32))
    step.set(np.array(5, np.int64))
    tf.train.Saver([counter]).restore(session, tmp_path / "one")
    assert (counter.value_now(), step.value_now()) == (7, 5)
    tf.train.Saver().restore(session, tmp_path / "all-0")
    assert step.value_now() == 0


def test_old_checkpoints_go_and_the_list_names_the_rest(tmp_path):
    session, _ = tf.Session(), Training()
    saver = tf.train.Saver(max_to_keep=2)
    for step in range(4):
        assert saver.save(session, tmp_path / "model", global_step=step) == str(tmp_path / f"model-{step}")
    assert saver.last_checkpoints == [str(tmp_path / f"model-{step}") for step in (2, 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "model-2.npz", "model-3.npz"]
    assert (tmp_path / "checkpoint").read_text() == (
        'model_checkpoint_path: "model-3"\n'
        'all_model_checkpoint_paths: "model-2"\nall_model_checkpoint_paths: "model-3"\n'
    )
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model-3")
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert tf.train.latest_checkpoint(moved) == str(moved / "model-3")
    assert tf.train.get_checkpoint_state(moved).all_model_checkpoint_paths == [
        str(moved / "model-2"),
        str(moved / "model-3"),
    ]
    (moved / "model-3.npz").unlink()
    assert tf.train.latest_checkpoint(moved) is None
    assert tf.train.latest_checkpoint(tmp_path / "none") is None


OUTSIDE = {
    "an absolute path": lambda folder: folder.parent / "victim" / "model",
    "a path upwards": lambda _: Path("../victim/model"),
    "a path upwards from below": lambda _: Path("below/../../victim/model"),
    "a link to a folder": lambda folder: linked(folder) / "model",
    "links in a circle": lambda folder: circle(folder) / "model",
}


def linked(folder):
    (folder / "link").symlink_to("../victim")
    return Path("link")


def circle(folder):
    (folder / "round").symlink_to("round")
    return Path("round")


@pytest.mark.parametrize("listed", OUTSIDE)
def test_what_a_list_names_outside_of_its_folder_is_not_deleted(listed, tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "model_dir"
    victim.mkdir()
    (folder / "below").mkdir(parents=True)
    for path in (victim / "model.npz", folder / "below" / "old.npz"):
        path.write_bytes(b"whose?")
    names = (OUTSIDE[listed](folder), "below/old", "below/new")
    (folder / "below" / "new.npz").write_bytes(b"the latest")
    lines = (f'all_model_checkpoint_paths: "{name}"\n' for name in names)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "below/new"\n{"".join(lines)}')
    session, _ = tf.Session(), Training()
    saver = tf.train.Saver(max_to_keep=1)
    saver.recover_last_checkpoints(tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths)
    saver.save(session, folder / "model")
    assert (victim / "model.npz").read_bytes() == b"whose?"
    assert list((folder / "below").iterdir()) == []  # what lies in the folder goes, as it always did


def test_a_saver_deletes_what_it_has_saved_itself_wherever_that_is(tmp_path):
    session, _ = tf.Session(), Training()
    saver = tf.train.Saver(max_to_keep=1)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        saver.save(session, tmp_path / name / "model")
    assert not (tmp_path / "one" / "model.npz").exists()


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path):
    session, training = tf.Session(), Training()
    saver = tf.train.Saver()
    saver.save(session, tmp_path / "model")
    before = (tmp_path / "model.npz").read_bytes()
    (tmp_path / "model-1.npz").mkdir()
    training.losses(session)
    with pytest.raises(OutputError, match=r"model-1\.npz: expected a place for a file, got a folder"):
        saver.save(session, tmp_path / "model", global_step=1)
    assert (tmp_path / "model.npz").read_bytes() == before
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model")


def saved(folder):
    Training()
    return tf.train.Saver().save(tf.Session(), folder / "model")


def test_a_checkpoint_of_another_model_is_refused_with_all_that_differs(tmp_path):
    in_context(lambda: saved(tmp_path))
    Training(optimizer="momentum", width=6)
    before = compiled()[0].arrays()
    text = (
        rf"checkpoint {tmp_path}/model: of another model: it lacks 'optimizer/a/dense/kernel', .* and holds "
        r".*'a/dense/kernel' is float32 of \(6, 5\) in it and float32 of \(6, 6\) here; "
        r".*'b/dense_1/kernel' is float32 of \(5, 2\) in it and float32 of \(6, 2\) here"
    )
    with pytest.raises(ProgramError, match=text):
        tf.train.Saver().restore(tf.Session(), tmp_path / "model")
    after = compiled()[0].arrays()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)  # nothing was set


def damaged(kind, path):
    data = path.read_bytes()
    if kind == "cut":
        return data[: len(data) // 2]
    if kind == "a bit":
        place = data.index(b"a/dense/kernel.npy") + 200
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    return {"empty": b"", "text": b"not an archive", "array": b"\x93NUMPY\x01\x00v\x00"}[kind]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("cut", "not a NumPy archive: File is not a zip file"),
        ("a bit", "not a NumPy archive of plain arrays: 'a/dense/kernel' cannot be read: Bad CRC-32"),
        ("empty", "not a NumPy archive: File is not a zip file"),
        ("text", "not a NumPy archive: File is not a zip file"),
        ("array", "expected an npz archive, got a single array"),
    ],
)
def test_a_damaged_checkpoint_is_refused(kind, text, tmp_path):
    path = Path(saved(tmp_path)).with_suffix(".npz")
    path.write_bytes(damaged(kind, path))
    with pytest.raises(ProgramError, match=rf"checkpoint {tmp_path}/model: {text}"):
        tf.train.Saver().restore(tf.Session(), tmp_path / "model")


def test_one_array_of_a_checkpoint_is_read_alone(tmp_path):
    """Of one whose others are damaged, too; which names there are says a message."""
    prefix = saved(tmp_path)
    before = tf.train.load_variable(prefix, "a/dense/bias:0")
    path = Path(prefix).with_suffix(".npz")
    path.write_bytes(damaged("a bit", path))
    np.testing.assert_array_equal(tf.train.load_variable(tmp_path, "a/dense/bias"), before)
    with pytest.raises(ProgramError, match="'a/dense/kernel' cannot be read: Bad CRC-32"):
        tf.train.load_variable(prefix, "a/dense/kernel")
    with pytest.raises(ProgramError, match=r"Key a/dense/biass not found in checkpoint; did you mean a/dense/bias\?"):
        tf.train.load_variable(prefix, "a/dense/biass")


def test_an_array_by_any_name_is_saved(tmp_path):
    names = ["file", "x/y", "z:0 a"]
    for name in names:
        tf.Variable(1.0, name=name)
    prefix = tf.train.Saver().save(tf.Session(), tmp_path / "model")
    assert [name for name, _ in tf.train.list_variables(prefix)] == names
    with zipfile.ZipFile(f"{prefix}.npz") as archive:
        assert archive.testzip() is None


REFUSED = {
    "no variables": (lambda folder: tf.train.Saver(), "No variables to save"),
    "no path": (
        lambda folder: (Training(), tf.train.Saver().restore(tf.Session(), None)),
        "Can't load save_path when it is None.",
    ),
    "no checkpoint": (
        lambda folder: (Training(), tf.train.Saver().restore(tf.Session(), "none")),
        "The passed save_path is not a valid checkpoint: none",
    ),
    "no folder": (
        lambda folder: (Training(), tf.train.Saver().save(tf.Session(), folder / "no" / "model")),
        "Parent directory of .*/no/model doesn't exist, can't save.",
    ),
    "its list": (
        lambda folder: (Training(), tf.train.Saver().save(tf.Session(), folder / "a", latest_filename="a")),
        "'latest_filename' collides with 'save_path': 'a' and '.*/a'",
    ),
    "no session": (
        lambda folder: (Training(), tf.train.Saver().save(None, folder / "model")),
        "sess: expected a tf.Session, got None",
    ),
    "a closed session": (
        lambda folder: (Training(), (session := tf.Session()).close(), tf.train.Saver().save(session, folder / "m")),
        "Attempted to use a closed Session.",
    ),
    "a negative step": (
        lambda folder: (Training(), tf.train.Saver().save(tf.Session(), folder / "model", global_step=-1)),
        "global_step: expected a whole number from 0 to 2147483647, got -1",
    ),
    "a variable list": (lambda folder: tf.train.Saver(5), "var_list: expected a list of variables, as such or by name"),
    "max_to_keep": (
        lambda folder: tf.train.Saver(max_to_keep=-1, allow_empty=True),
        "max_to_keep: expected a whole number from 0 to 2147483647, got -1",
    ),
    "reshape": (
        lambda folder: tf.train.Saver(reshape=True, allow_empty=True),
        "reshape: expected False, as arrays are restored in their shapes, got True",
    ),
    "a damaged list": (
        lambda folder: ((folder / "checkpoint").write_text("bogus"), tf.train.latest_checkpoint(folder)),
        'checkpoint: expected a list of checkpoints, with a line `model_checkpoint_path: "..."`',
    ),
    "no variable": (
        lambda folder: tf.train.load_variable(saved(folder), "bogus"),
        "Key bogus not found in checkpoint",
    ),
    "a folder without checkpoints": (
        tf.train.list_variables,
        "Couldn't find 'checkpoint' file or checkpoints in given directory",
    ),
    "an infeed that cannot go back": (
        lambda folder: (
            training := Training(dataset=iter(zip(X, Y, strict=True))),
            session := tf.Session(),
            saver := tf.train.Saver(),
            saver.save(session, folder / "model"),
            training.losses(session),
            saver.restore(session, folder / "model"),
        ),
        "dataset: expected one that can be gone through again, to go back in it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why(case, tmp_path):
    call, text = REFUSED[case]
    with pytest.raises((ProgramError, ProgramTypeError), match=text):
        call(tmp_path)
