"""The benchmark of datasets, by a clock of the test's own, and what a scenario makes of the rate."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import ModelError
from ipusim.ipu import data
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.dataset_benchmark import dataset_benchmark, infeed_benchmark
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind

MS = 10**6
#: Each element is 1,000 numbers of four bytes, and the dataset takes two milliseconds for it: 2 MB/s.
ELEMENT = np.zeros((10, 100), np.float32)
ELEMENT_BYTES, ELEMENT_NS = 4000, 2 * MS


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the dataset moves; a list of its nanoseconds."""
    now = [0]
    monkeypatch.setattr(importlib.import_module("ipusim.ipu.dataset_benchmark"), "perf_counter_ns", lambda: now[0])
    return now


def slow(clock, elements=10**6, element=ELEMENT, taken=None):
    def generate():
        for index in range(elements):
            clock[0] += ELEMENT_NS if taken is None else taken(index)
            yield element

    return data.Dataset.from_generator(generate)


def epochs_of(benchmark):
    with tf.Session() as session:
        found = session.run(benchmark)
    assert isinstance(found[0], str)
    return json.loads(found[0])


def test_an_epoch_has_the_numbers_of_the_reference(clock):
    found = epochs_of(dataset_benchmark(slow(clock), 2, 5, print_stats=False))
    epoch = {
        "elements_processed": 5,
        "total_bytes_processed": 20000,
        "time_elapsed": pytest.approx(0.01),
        "elements_per_second": pytest.approx(500),
        "bandwidth": pytest.approx(0.002),
    }
    assert found == {"epochs": [epoch, epoch]}


def test_epochs_go_on_where_the_one_before_ended_and_each_run_begins_anew(clock):
    benchmark = dataset_benchmark(slow(clock, taken=lambda index: (index + 1) * MS), 2, 2, print_stats=False)
    for text in (*benchmark.numpy(), *benchmark.numpy()):
        found = json.loads(text)["epochs"]
        assert [epoch["time_elapsed"] for epoch in found] == [pytest.approx(0.003), pytest.approx(0.007)]


@pytest.mark.parametrize("do_memcpy", [True, False])
def test_all_arrays_of_an_element_count(clock, do_memcpy):
    element = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.int64)}
    dataset = data.Dataset.from_tensors(element).repeat()
    (epoch,) = epochs_of(dataset_benchmark(dataset, 1, 3, False, True, do_memcpy))["epochs"]
    assert epoch["total_bytes_processed"] == 3 * (12 + 32)
    assert epoch["time_elapsed"] == 1e-9  # the dataset moved no clock: one tick of it


def test_elements_of_several_forms_are_copied(clock):
    dataset = data.Dataset.from_tensor_slices(np.arange(10.0, dtype=np.float32)).batch(4)
    (epoch,) = epochs_of(dataset_benchmark(dataset, 1, 3, False))["epochs"]
    assert epoch["total_bytes_processed"] == 4 * 10


def test_rates_are_printed(clock, capsys):
    dataset_benchmark(slow(clock), 2, 5).numpy()
    assert capsys.readouterr().out == (
        "Epoch 0: 500 elements/second, 0.002000 GB/s.\nEpoch 1: 500 elements/second, 0.002000 GB/s.\n"
    )
    dataset_benchmark(slow(clock), 2, 5, False).numpy()
    assert capsys.readouterr().out == ""


def test_a_queue_misses_no_element(clock):
    queue = IPUInfeedQueue(slow(clock, element={"x": ELEMENT, "y": np.float32(1)}))
    (epoch,) = epochs_of(infeed_benchmark(queue, 1, 5, False))["epochs"]
    assert (epoch["total_bytes_processed"], epoch["elements_per_second"]) == (5 * 4004, pytest.approx(500))
    assert queue.consumed == 0
    listed = infeed_benchmark(IPUInfeedQueue([(1.5, np.arange(2))] * 4), 2, 2, False)
    assert [epoch["elements_processed"] for epoch in json.loads(listed.numpy()[0])["epochs"]] == [2, 2]


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        (
            TypeError,
            "Expected `dataset` argument to be of type `tf.data.Dataset`, but got [1] instead.",
            lambda: dataset_benchmark([1], 1, 1),
        ),
        (
            TypeError,
            "Expected `infeed_queue` argument to be of type `ipu.ipu_infeed_queue.IPUInfeedQueue`, but got [1] "
            "instead.",
            lambda: infeed_benchmark([1], 1, 1),
        ),
        (
            ValueError,
            "Expected `number_of_epochs` to be at least 1.",
            lambda: dataset_benchmark(data.Dataset.range(3), 0, 1),
        ),
        (
            ValueError,
            "Expected `elements_per_epochs` to be at least 1.",
            lambda: infeed_benchmark(IPUInfeedQueue([ELEMENT]), 1, -1),
        ),
        (
            ValueError,
            "Detected a tensor in the dataset with a dimension of size 0",
            lambda: dataset_benchmark(data.Dataset.from_tensors(np.zeros((4, 0))), 1, 1).numpy(),
        ),
    ],
)
def test_what_is_refused(kind, text, wrong, refused):
    refused(kind, text, wrong)


def test_elements_that_come_once_and_too_few():
    with pytest.raises(TypeError, match=r"^infeed_queue: expected a dataset that can be gone through again, "):
        infeed_benchmark(IPUInfeedQueue(repeat([ELEMENT])), 1, 1)
    with pytest.raises(
        ModelError, match=r"reached the end of the dataset: expected 4 elements, give more or repeat it"
    ):
        dataset_benchmark(data.Dataset.range(3), 2, 2, False).numpy()


@pytest.mark.parametrize(("elements", "size", "kept"), [(7, 3, 6), (6, 3, 6), (2, 3, 0), (5, 1, 5), (0, 4, 0)])
def test_a_buffer_dataset_drops_what_fills_no_buffer(elements, size, kept):
    dataset = data.ops.dataset_ops.BufferDataset(data.Dataset.range(elements), size)
    for _ in range(2):
        assert list(dataset) == list(range(kept))
    assert list(dataset.map(lambda x: x + 1)) == list(range(1, kept + 1))


def test_a_buffer_dataset_of_an_endless_one_reads_no_further_than_a_buffer(refused):
    read = []
    dataset = data.Dataset.range(100).map(lambda x: read.append(int(x)) or x).repeat()
    source = iter(data.ops.dataset_ops.BufferDataset(dataset, 4))
    assert [int(next(source)) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(read) == 8
    refused(
        ValueError,
        "Buffer size must be greater than zero.",
        lambda: data.ops.dataset_ops.BufferDataset(dataset, 0),
    )
    refused(TypeError, "input_dataset: expected a Dataset, got [1]", lambda: data.ops.dataset_ops.BufferDataset([1], 4))


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


def test_a_scenario_with_the_measured_rate_waits_for_the_host(clock, load):
    (epoch,) = json.loads(infeed_benchmark(IPUInfeedQueue(slow(clock)), 1, 100, False).numpy()[0])["epochs"]
    job = load(SCENARIO, f"system.host.data_rate={epoch['bandwidth']} GB/s")
    assert job.system.host_data_cycles(ELEMENT_BYTES) == ELEMENT_NS  # a cycle is a nanosecond
    run = execute(job)
    fills = [span for span in run.timeline if span.kind == SpanKind.HOST and span.link == 0]
    assert [span.end - span.start for span in fills] == [ELEMENT_NS] * 8
    shares = run.summary.to_dict()["waterfall"]["shares"]
    assert max(shares, key=shares.get) == "host"
    usual = load(SCENARIO)
    fast = execute(usual)
    assert fast.timeline.makespan_cycles * 100 < run.timeline.makespan_cycles
    assert 8 * ELEMENT_NS < run.timeline.makespan_cycles < 8.1 * ELEMENT_NS


def test_a_dataset_may_be_slow_down_to_a_kilobyte_a_second(clock, load):
    dataset = slow(clock, element=np.zeros(1000, np.float32), taken=lambda index: 4 * 10**9)
    (epoch,) = json.loads(dataset_benchmark(dataset, 1, 3, False).numpy()[0])["epochs"]
    job = load(SCENARIO, f"system.host.data_rate={epoch['bandwidth']} GB/s")
    assert job.system.host_data_cycles(ELEMENT_BYTES) == 4 * 10**9
    assert 8 * 4 * 10**9 < execute(job).timeline.makespan_cycles < 8.1 * 4 * 10**9
    with pytest.raises(ScenarioError, match=r"expected bytes per second from 1 kB/s to 100 TB/s, .* got '999 B/s'"):
        load(SCENARIO, "system.host.data_rate=999 B/s")
