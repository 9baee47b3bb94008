"""Elements and inputs written to files: what numpy reads of them, and what is refused without a file."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ModelError, OutputError
from ipusim.ipu import tensorflow as tf
from ipusim.ipu import utils
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat

PAIRS = tf.data.Dataset.from_tensor_slices(
    {"a": np.arange(12, dtype=np.float32).reshape(6, 2), "b": np.arange(6, dtype=np.int32)}
).repeat()


def test_each_array_of_an_element_has_a_file(tmp_path):
    utils.export_dataset_to_file(PAIRS, str(tmp_path / "my.dataset.bin"), 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.dataset.0.bin", "my.dataset.1.bin"]
    first, second = (np.load(tmp_path / f"my.dataset.{place}.bin") for place in (0, 1))
    assert (first.dtype, first.tolist()) == (np.float32, [[0, 1], [2, 3], [4, 5], [6, 7]])
    assert (second.dtype, second.tolist()) == (np.int32, [0, 1, 2, 3])


def test_an_element_of_one_array_has_the_file_of_that_name(tmp_path):
    read = []
    dataset = tf.data.Dataset.range(9).map(lambda x: read.append(int(x)) or x)
    utils.export_dataset_to_file(dataset, tmp_path / "numbers", 3)
    assert np.load(tmp_path / "numbers").tolist() == read == [0, 1, 2]


def test_a_queue_misses_no_element(tmp_path):
    queue = IPUInfeedQueue(PAIRS)
    utils.export_dataset_to_file(queue, tmp_path / "queue.bin", 2, "feed", False)
    assert np.load(tmp_path / "queue.1.bin").tolist() == [0, 1]
    assert queue.consumed == 0
    assert queue.take(0)[1] == 0
    utils.export_dataset_to_file(IPUInfeedQueue([1.5, 2.5]), tmp_path / "list.bin", 2)
    assert np.load(tmp_path / "list.bin").tolist() == [1.5, 2.5]


def test_inputs_are_an_archive_by_name(tmp_path):
    x, rate = tf.placeholder(np.float32, [2], name="x"), tf.placeholder_with_default(0.5, [], name="rate")
    again = tf.placeholder(np.int32, [], name="x")
    values = {x: [1, 2], again: 3}
    utils.export_inputs_to_file([x, rate, again, rate * 2, 7], tmp_path / "inputs.bin", values)
    with np.load(tmp_path / "inputs.bin") as found:
        held = {name: found[name].tolist() for name in found}
        assert found["x"].dtype == np.float32
    assert held == {"x": [1, 2], "rate": 0.5, "x_2": 3, "input_3": 1, "input_4": 7}


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        (
            TypeError,
            "dataset_or_infeed: expected a Dataset or an IPUInfeedQueue, got [1]",
            lambda path: utils.export_dataset_to_file([1], path, 1),
        ),
        (
            ValueError,
            "Expected `num_elements` to be at least 1.",
            lambda path: utils.export_dataset_to_file(PAIRS, path, 0),
        ),
        (
            ValueError,
            "num_elements: expected a whole number from 0 to 2147483647, got 1000000000000000000000",
            lambda path: utils.export_dataset_to_file(PAIRS, path, 10**21),
        ),
        (
            ModelError,
            "The dataset iterator has reached the end of the dataset: expected 4 elements, got 3",
            lambda path: utils.export_dataset_to_file(tf.data.Dataset.range(3), path, 4),
        ),
        (
            TypeError,
            "output_filename: expected the name of a file, got ''",
            lambda path: utils.export_inputs_to_file([], "", {}),
        ),
        (
            TypeError,
            "feed_dict: expected a dictionary of placeholders' values, got {'x': 1}",
            lambda path: utils.export_inputs_to_file([], path, {"x": 1}),
        ),
        (
            ValueError,
            "You must feed a value for placeholder tensor 'x' with dtype float32 and shape [2]",
            lambda path: utils.export_inputs_to_file([tf.placeholder(np.float32, [2], name="x")], path, {}),
        ),
        (
            TypeError,
            "inputs[1]: expected an array or a number, got 'x'",
            lambda path: utils.export_inputs_to_file([1, "x"], path, {}),
        ),
    ],
)
def test_what_is_refused_leaves_no_file(kind, text, wrong, refused, tmp_path):
    refused(kind, text, lambda: wrong(tmp_path / "file.bin"))
    assert list(tmp_path.iterdir()) == []


def test_elements_that_come_once_or_in_several_forms(tmp_path):
    with pytest.raises(TypeError, match=r"^dataset_or_infeed: expected a dataset that can be gone through again, "):
        utils.export_dataset_to_file(IPUInfeedQueue(repeat([1.0])), tmp_path / "file", 1)
    with pytest.raises(ValueError, match=r"^dataset_or_infeed: expected elements of one shape and type, got "):
        utils.export_dataset_to_file(tf.data.Dataset.range(3).batch(2), tmp_path / "file", 2)
    with pytest.raises(OutputError, match=r"expected a place for a file, got a folder"):
        utils.export_dataset_to_file(tf.data.Dataset.range(3), tmp_path, 2)
    assert list(tmp_path.iterdir()) == []
