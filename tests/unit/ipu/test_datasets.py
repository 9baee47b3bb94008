"""The benchmark of datasets, by a clock of the test's own, and what a scenario makes of the rate.

Also elements and inputs written to files: what numpy reads of them, and what is refused without a file. What arguments
do not take is in test_misuse.
"""

import json

import numpy as np
import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import ModelError, OutputError
from tests.programs import hosted_names
from tests.traced_training import Lazily

pytestmark = pytest.mark.usefixtures("tf")

MS = 10**6
#: Each element is 1,000 numbers of four bytes, and the dataset takes two milliseconds for it: 2 MB/s.
ELEMENT = np.zeros((10, 100), np.float32)
ELEMENT_BYTES, ELEMENT_NS = 4000, 2 * MS
PAIRS = {"a": np.arange(12, dtype=np.float32).reshape(6, 2), "b": np.arange(6, dtype=np.int32)}
benchmarks, ipu_infeed_queue = Lazily("dataset_benchmark"), Lazily("ipu_infeed_queue")


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the dataset moves; a list of its nanoseconds."""
    from ipusim.ipu import dataset_benchmark  # noqa: PLC0415

    now = [0]
    monkeypatch.setattr(dataset_benchmark, "perf_counter_ns", lambda: now[0])
    return now


def slow(tf, clock, elements=10**6, element=ELEMENT, taken=None):
    def generate():
        for index in range(elements):
            clock[0] += ELEMENT_NS if taken is None else taken(index)
            yield element

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # else TensorFlow makes elements ahead
    dataset = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec(element.shape, element.dtype))
    return dataset.with_options(options)


def epochs_of(benchmark):
    return json.loads(benchmark.numpy()[0])["epochs"]


def test_an_epoch_has_the_numbers_of_the_reference_in_a_session_too(tf, clock):
    epoch = {
        "elements_processed": 5,
        "total_bytes_processed": 20000,
        "time_elapsed": pytest.approx(0.01),
        "elements_per_second": pytest.approx(500),
        "bandwidth": pytest.approx(0.002),
    }
    assert epochs_of(benchmarks.dataset_benchmark(slow(tf, clock), 2, 5, print_stats=False)) == [epoch, epoch]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        operation = benchmarks.dataset_benchmark(slow(tf, clock), 2, 5, print_stats=False)
        for _ in range(2):  # each run begins anew
            assert json.loads(session.run(operation)[0])["epochs"] == [epoch, epoch]


def test_epochs_go_on_where_the_one_before_ended(tf, clock):
    dataset = slow(tf, clock, taken=lambda index: (index + 1) * MS)
    found = epochs_of(benchmarks.dataset_benchmark(dataset, 2, 2, print_stats=False))
    assert [epoch["time_elapsed"] for epoch in found] == [pytest.approx(0.003), pytest.approx(0.007)]


@pytest.mark.parametrize("do_memcpy", [True, False])
def test_all_arrays_of_an_element_count_in_any_form(tf, clock, do_memcpy):
    element = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.int64)}
    dataset = tf.data.Dataset.from_tensors(element).repeat()
    (epoch,) = epochs_of(benchmarks.dataset_benchmark(dataset, 1, 3, False, True, do_memcpy))
    assert epoch["total_bytes_processed"] == 3 * (12 + 32)
    assert epoch["time_elapsed"] == 1e-9  # the dataset moved no clock: one tick of it
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(10.0, dtype=np.float32)).batch(4)
    assert epochs_of(benchmarks.dataset_benchmark(dataset, 1, 3, False))[0]["total_bytes_processed"] == 4 * 10


def test_rates_are_printed(tf, clock, capsys):
    benchmarks.dataset_benchmark(slow(tf, clock), 2, 5)
    assert capsys.readouterr().out == (
        "Epoch 0: 500 elements/second, 0.002000 GB/s.\nEpoch 1: 500 elements/second, 0.002000 GB/s.\n"
    )
    benchmarks.dataset_benchmark(slow(tf, clock), 2, 5, False)
    assert capsys.readouterr().out == ""


def test_a_queue_misses_no_element(tf, clock):
    queue = ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(9))
    assert epochs_of(benchmarks.infeed_benchmark(queue, 1, 5, False))[0]["total_bytes_processed"] == 5 * 8
    assert int(queue.feed.pull()[0]) == 0


def test_a_dataset_with_elements_of_no_size_is_refused(tf, clock, refused):
    """Arguments of other types and counts are in test_misuse."""
    empty = tf.data.Dataset.from_tensors(np.zeros((4, 0)))
    text = "Detected a tensor in the dataset with a dimension of size 0"
    refused(ValueError, text, lambda: benchmarks.dataset_benchmark(empty, 1, 1))


#: A clock of 1 GHz, and stages that need two microseconds for a micro-batch.
SCENARIO = """
system: {name: m2000, clock: 1 GHz}
pipeline:
  gradient_accumulation_count: 8
  stages:
    - {name: a, forward: 1000}
    - {name: b, forward: 1000}
infeed: {element_bytes: 4000 B}
"""


def test_a_dataset_may_be_slow_down_to_a_kilobyte_a_second(tf, clock, load):
    dataset = slow(tf, clock, element=np.zeros(1000, np.float32), taken=lambda index: 4 * 10**9)
    (epoch,) = epochs_of(benchmarks.dataset_benchmark(dataset, 1, 3, False))
    job = load(SCENARIO, f"system.host.data_rate={epoch['bandwidth']} GB/s")
    assert job.system.host_data_cycles(ELEMENT_BYTES) == 4 * 10**9
    with pytest.raises(ScenarioError, match=r"expected bytes per second from 1 kB/s to 100 TB/s, .* got '999 B/s'"):
        load(SCENARIO, "system.host.data_rate=999 B/s")


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


def test_a_queue_that_is_exported_misses_no_element(names, tmp_path):
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


def three(names):
    return names.tf.data.Dataset.range(3)


REFUSED = {
    "no element": (
        ValueError,
        "Expected `num_elements` to be at least 1.",
        lambda names, path: names.ipu.utils.export_dataset_to_file(pairs(names), path, 0),
    ),
    "endless": (
        ValueError,
        "num_elements: expected a whole number from 0 to 2147483647, got 1000000000000000000000",
        lambda names, path: names.ipu.utils.export_dataset_to_file(three(names), path, 10**21),
    ),
    "few elements": (
        ModelError,
        "The dataset iterator has reached the end of the dataset: expected 4 elements, got 3",
        lambda names, path: names.ipu.utils.export_dataset_to_file(three(names), path, 4),
    ),
    "several forms": (
        ValueError,
        "dataset_or_infeed: expected elements of one shape, got '(1,) and (2,)'",
        lambda names, path: names.ipu.utils.export_dataset_to_file(three(names).batch(2), path, 2),
    ),
    "a folder": (
        OutputError,
        "expected a place for a file, got a folder",
        lambda names, path: names.ipu.utils.export_dataset_to_file(three(names), path.parent, 2),
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
