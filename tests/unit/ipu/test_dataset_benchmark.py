"""The benchmark of datasets, by a clock of the test's own, and what a scenario makes of the rate."""

import json

import numpy as np
import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import ModelError
from tests.traced_training import Lazily

pytestmark = pytest.mark.usefixtures("tf")

MS = 10**6
#: Each element is 1,000 numbers of four bytes, and the dataset takes two milliseconds for it: 2 MB/s.
ELEMENT = np.zeros((10, 100), np.float32)
ELEMENT_BYTES, ELEMENT_NS = 4000, 2 * MS
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


def test_a_dataset_with_elements_of_no_size_or_too_few_of_them_is_refused(tf, clock, refused):
    """Arguments of other types and counts are in test_graphcore_texts."""
    empty = tf.data.Dataset.from_tensors(np.zeros((4, 0)))
    text = "Detected a tensor in the dataset with a dimension of size 0"
    refused(ValueError, text, lambda: benchmarks.dataset_benchmark(empty, 1, 1))
    text = "reached the end of the dataset: expected 4 elements, give more or repeat it"
    with pytest.raises(ModelError, match=text):
        benchmarks.dataset_benchmark(tf.data.Dataset.range(3), 2, 2, False)


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
