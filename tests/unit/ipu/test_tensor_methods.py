"""Methods of TensorFlow's tensors in programs whose stages compute with arrays."""

from __future__ import annotations

import pytest

from ipusim.base.errors import ProgramError
from ipusim.ipu.programs.program_file import ProgramFile

HEAD = """\
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
said = []
"""
LOOP = """
def body(x):
    cast = tf.cast(x, tf.float32)
    weight = tf.get_variable("w", [x.get_shape().as_list()[-1], 3])
    y = tf.matmul(cast, weight)
    said.append((cast.get_shape().as_list(), y.get_shape().as_list(), y.shape.as_list(), y.shape[1].value))
    said.append((y.get_shape()[0].value, y.get_shape().rank, y.set_shape([None, 3]), weight.shape.as_list()))
    loss = tf.reduce_mean(y)
    assert loss.get_shape().as_list() == []
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss)

data = tf.data.Dataset.from_tensor_slices(np.ones((4, 2, 5), np.int32)).repeat()
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
ipu.loops.repeat(2, body, [], ipu.ipu_infeed_queue.IPUInfeedQueue(data))
assert all(each[0] in ([2, 5], 2) for each in said), said
assert [each for each in said if each[0] == 2][0] == (2, 2, None, [5, 3]), said
print(said[0])
"""
ON_HOST = """
class Own:
    def numpy(self):
        return "own"
    shape = (1,)
    def get_shape(self):
        return "shape"

place = tf.placeholder(tf.float32, [None, 4])
print(place.get_shape().as_list(), place.shape.as_list(), place.shape[0].value, Own().numpy(), Own().get_shape())
dense = tf.keras.layers.Input((3,))
print(dense.get_shape().as_list(), np.float32(2).numpy(), np.ones(2).numpy().tolist())
for element in tf.data.Dataset.from_tensor_slices(np.arange(2)):
    print(element.numpy())
"""


def test_arrays_of_a_body_have_them_traced_or_not(tmp_path, capsys):
    (tmp_path / "program.py").write_text(HEAD + LOOP)
    ProgramFile(tmp_path / "program.py").run()
    assert capsys.readouterr().out == "([2, 5], [2, 3], [2, 3], 3)\n"


def test_what_has_a_method_itself_keeps_it(tmp_path, capsys):
    (tmp_path / "program.py").write_text(HEAD + ON_HOST)
    ProgramFile(tmp_path / "program.py").run()
    assert capsys.readouterr().out == "[None, 4] [None, 4] None own shape\n[None, 3] 2.0 [1.0, 1.0]\n0\n1\n"


def test_modules_of_a_programs_own_have_them_and_leave_nothing_behind(tmp_path, capsys):
    (tmp_path / "beside.py").write_text("import json\n\ndef sizes(x):\n    return x.get_shape().as_list()\n")
    (tmp_path / "program.py").write_text(HEAD + "import beside\nprint(beside.sizes(np.ones((2, 3))))\n")
    ProgramFile(tmp_path / "program.py").run()
    assert capsys.readouterr().out == "[2, 3]\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside.py", "program.py"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("np.ones((2, 3)).set_shape([2, 4])", r"program.py:5: .*\(2, 3\) is not compatible with .* \[2, 4\]"),
        ("np.ones(2).set_shape([None, 2])", r"program.py:5: .*\(2,\) is not compatible"),
    ],
)
def test_a_shape_that_a_tensor_has_not_is_refused(tmp_path, line, text):
    (tmp_path / "program.py").write_text(HEAD + line)
    with pytest.raises(ProgramError, match=text):
        ProgramFile(tmp_path / "program.py").run()


def test_what_no_array_has_is_said_as_python_says_it(tmp_path, capsys):
    (tmp_path / "program.py").write_text(HEAD + "'text'.get_shape()\n")
    with pytest.raises(Exception, match="1"):
        ProgramFile(tmp_path / "program.py").run()
    assert "line 5, in <module>" in (err := capsys.readouterr().err)
    assert "AttributeError: 'str' object has no attribute 'get_shape'" in err


READ = """
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
def body(x):
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    before = w.read_value(), w.value() * 2.0
    train = tf.train.GradientDescentOptimizer(0.25).minimize(w * x)
    with tf.control_dependencies([train]):
        return outfeed.enqueue({values})

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
data = tf.data.Dataset.from_tensor_slices(np.ones(2, np.float32)).repeat()
ipu.loops.repeat(2, body, [], ipu.ipu_infeed_queue.IPUInfeedQueue(data))
print([array.tolist() for array in outfeed.dequeue()])
"""


def test_a_variable_is_read_before_its_update(tmp_path, capsys):
    (tmp_path / "program.py").write_text(HEAD + READ.format(values="before"))
    ProgramFile(tmp_path / "program.py").run()
    assert capsys.readouterr().out == "[[1.0, 0.75], [2.0, 1.5]]\n"


@pytest.mark.parametrize("values", ["w.read_value()", "tf.get_variable('v', [])"])
def test_a_variable_is_not_read_behind_the_update(tmp_path, values):
    (tmp_path / "program.py").write_text(HEAD + READ.format(values=values))
    with pytest.raises(ProgramError, match=r"variable '[vw]': expected to be read before the weight update"):
        ProgramFile(tmp_path / "program.py").run()
