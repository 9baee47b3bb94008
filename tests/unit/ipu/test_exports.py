"""Elements and inputs written to files: what numpy reads of them, and what is refused without a file.

What arguments do not take is in test_misuse.
"""

import numpy as np
import pytest

from ipusim.base.errors import ModelError, OutputError
from tests.programs import hosted_names

PAIRS = {"a": np.arange(12, dtype=np.float32).reshape(6, 2), "b": np.arange(6, dtype=np.int32)}


@pytest.fixture(params=[1, 2])
def names_of_each(request):
    """The names of each version of TensorFlow."""
    with hosted_names(request.param) as found:
        yield found


def pairs(names):
    return names.tf.data.Dataset.from_tensor_slices(PAIRS).repeat()


def test_each_array_of_an_element_has_a_file(names_of_each, tmp_path):
    names = names_of_each
    names.ipu.utils.export_dataset_to_file(pairs(names), str(tmp_path / "my.dataset.bin"), 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.dataset.0.bin", "my.dataset.1.bin"]
    first, second = (np.load(tmp_path / f"my.dataset.{place}.bin") for place in (0, 1))
    assert (first.dtype, first.tolist()) == (np.float32, [[0, 1], [2, 3], [4, 5], [6, 7]])
    assert (second.dtype, second.tolist()) == (np.int32, [0, 1, 2, 3])


def test_an_element_of_one_array_has_the_file_of_that_name(names_of_each, tmp_path):
    names = names_of_each
    dataset = names.tf.data.Dataset.range(9).map(lambda x: 2 * x)
    names.ipu.utils.export_dataset_to_file(dataset, tmp_path / "numbers", 3)
    assert np.load(tmp_path / "numbers").tolist() == [0, 2, 4]


def test_a_queue_misses_no_element(names, tmp_path):
    tf, ipu = names.tf, names.ipu
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(pairs(names)), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    ipu.utils.export_dataset_to_file(infeed, tmp_path / "queue.bin", 2, "feed", False)
    assert np.load(tmp_path / "queue.1.bin").tolist() == [0, 1]
    loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, lambda a, b: outfeed.enqueue(b), [], infeed))
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(loop)
        assert session.run(outfeed.dequeue()).tolist() == [0, 1]


def test_inputs_are_an_archive_by_name(names, tmp_path):
    tf = names.tf
    x, rate = tf.placeholder(np.float32, [2], name="x"), tf.placeholder_with_default(0.5, [], name="rate")
    inputs = [x, rate, tf.multiply(rate, 2, name="twice"), 7]
    names.ipu.utils.export_inputs_to_file(inputs, tmp_path / "inputs.bin", {x: [1, 2]})
    with np.load(tmp_path / "inputs.bin") as found:
        held = {name: found[name].tolist() for name in found}
        assert found["x"].dtype == np.float32
    assert held == {"x": [1, 2], "rate": 0.5, "twice": 1, "input_3": 7}


REFUSED = {
    "no element": (
        ValueError,
        "Expected `num_elements` to be at least 1.",
        lambda names, path: names.ipu.utils.export_dataset_to_file(pairs(names), path, 0),
    ),
    "endless": (
        ValueError,
        "num_elements: expected a whole number from 0 to 2147483647, got 1000000000000000000000",
        lambda names, path: names.ipu.utils.export_dataset_to_file(names.tf.data.Dataset.range(3), path, 10**21),
    ),
    "few elements": (
        ModelError,
        "The dataset iterator has reached the end of the dataset: expected 4 elements, got 3",
        lambda names, path: names.ipu.utils.export_dataset_to_file(names.tf.data.Dataset.range(3), path, 4),
    ),
    "several forms": (
        ValueError,
        "dataset_or_infeed: expected elements of one shape, got '(1,) and (2,)'",
        lambda names, path: names.ipu.utils.export_dataset_to_file(names.tf.data.Dataset.range(3).batch(2), path, 2),
    ),
    "a folder": (
        OutputError,
        "expected a place for a file, got a folder",
        lambda names, path: names.ipu.utils.export_dataset_to_file(names.tf.data.Dataset.range(3), path.parent, 2),
    ),
    "no name": (
        TypeError,
        "output_filename: expected the name of a file, got ''",
        lambda names, path: names.ipu.utils.export_inputs_to_file([], "", {}),
    ),
    "no feeds": (
        TypeError,
        "feed_dict: expected a dictionary of placeholders' values, got dict_items([('x', 1)])",
        lambda names, path: names.ipu.utils.export_inputs_to_file([], path, {"x": 1}.items()),
    ),
    "not fed": (
        Exception,
        "You must feed a value for placeholder tensor 'x' with dtype float and shape [2]",
        lambda names, path: names.ipu.utils.export_inputs_to_file(
            [names.tf.placeholder(np.float32, [2], name="x")], path, {}
        ),
    ),
    "no number": (
        TypeError,
        "inputs[1]: expected an array or a number, got 'x'",
        lambda names, path: names.ipu.utils.export_inputs_to_file([1, "x"], path, {}),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_export_leaves_no_file(names, case, tmp_path):
    kind, text, wrong = REFUSED[case]
    with pytest.raises(kind) as raised:
        wrong(names, tmp_path / "file.bin")
    assert text in str(raised.value)
    assert list(tmp_path.iterdir()) == []
