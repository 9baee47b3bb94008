"""Several TensorFlow devices in one configuration: each is a system of its own, and a program runs on one of them."""

from functools import partial

import numpy as np
import pytest

from ipusim.base.errors import DeviceError, ProgramError, UnsupportedProgramError
from ipusim.ipu import utils
from ipusim.ipu.config import get_ipu_config
from ipusim.ipu.runtime.recording import Recorder, recording
from tests.programs import configured, needs_tensorflow

needs_tensorflow(at_import=True)

from ipusim.ipu import ipu_compiler, loops  # noqa: E402 - as above
from ipusim.ipu.graph.tensorflow_import import load  # noqa: E402 - which needs TensorFlow
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue  # noqa: E402 - as above
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue  # noqa: E402 - as above
from ipusim.ipu.ipu_strategy import IPUStrategy  # noqa: E402 - as above
from ipusim.ipu.pipelining_ops import pipeline  # noqa: E402 - as above
from ipusim.ipu.scopes import ipu_scope  # noqa: E402 - as above

tf = load()
v1 = tf.compat.v1
X = np.arange(24, dtype=np.float32).reshape(12, 2)


def sizes(count):
    return [utils.get_num_of_ipus_in_device(f"/device:IPU:{ordinal}") for ordinal in range(count)]


def run(*operations):
    with v1.Session() as session:
        session.run(v1.tables_initializer())
        for operation in operations:
            session.run(operation)


@pytest.fixture
def in_graph():
    """Gives a test a graph."""
    with tf.Graph().as_default():
        yield


def piped(stage, infeed, outfeed, config=None):
    stages = [stage, lambda x: x]
    return pipeline(stages, 2, infeed_queue=infeed, outfeed_queue=outfeed, device_mapping=[0, 0], config=config)


def data(ordinal):
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat(), device_ordinal=ordinal)
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, queue.initializer)  # begins when something runs
    return queue


def queue(ordinal):
    return IPUOutfeedQueue(device_ordinal=ordinal)


@pytest.mark.parametrize(
    ("attributes", "machine", "ipus"),
    [
        ({"auto_select_ipus": [1, 2]}, "m2000", [[0], [2, 3]]),
        ({"auto_select_ipus": (2, 1, 1)}, "m2000", [[0, 1], [2], [3]]),
        ({"auto_select_ipus": [1, 4]}, "pod16", [[0], [4, 5, 6, 7]]),
        ({"auto_select_ipus": [1, 2], "machine": "bow_pod16"}, "bow_pod16", [[0], [2, 3]]),
        ({"select_ipus": [5, 0]}, "m2000", [[2, 3], [0]]),
        ({"select_ipus": [24, 25]}, "pod16", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
)
@pytest.mark.usefixtures("in_graph")
def test_devices_share_no_ipu_on_the_smallest_machine_that_has_all(attributes, machine, ipus):
    config = configured(**attributes)
    config.configure_ipu_system()
    assert sizes(len(ipus)) == list(map(len, ipus))
    assert len(get_ipu_config()) == len(ipus)
    compiled = []
    for ordinal in range(len(ipus)):
        with ipu_scope(f"/device:IPU:{ordinal}"):
            queues = data(ordinal), queue(ordinal)
            compiled.append(ipu_compiler.compile(partial(piped, lambda x: x, *queues)))
    with recording(Recorder()) as recorder:
        run(*compiled)
    assert sorted(sorted(each.job.system.ipus) for each in recorder.programs) == sorted(ipus)
    assert {config.device((0,), ordinal=ordinal)["name"] for ordinal in range(len(ipus))} == {machine}


@pytest.mark.parametrize(
    ("attributes", "ordinal", "text"),
    [
        (
            {"auto_select_ipus": [1, 2]},
            2,
            "Device ordinal 2 not in device configuration list. Expected a device from /device:IPU:0 to /device:IPU:1, "
            "because IPUConfig.auto_select_ipus has 2",
        ),
        (
            {"select_ipus": [0, 4]},
            0,
            r"Could not find an available device for TensorFlow virtual device /device:IPU:1. This device was expected "
            r"to have 2 IPU\(s\). .* The devices before it have 1 of the 4 IPUs of m2000",
        ),
        ({"auto_select_ipus": [2, 3]}, 0, "with 3 IPUs for the TensorFlow virtual device /device:IPU:1. Use `gc-info"),
    ],
)
def test_a_device_that_there_is_not(attributes, ordinal, text):
    with pytest.raises(DeviceError, match=text):
        configured(**attributes).device((0,), ordinal=ordinal)


@pytest.mark.usefixtures("in_graph")
def test_each_program_runs_on_the_device_in_whose_scope_it_was_built():
    """Also where the device is configured when all is compiled."""

    def body(element):
        with ipu_scope("/device:IPU:1"):  # the program's own, whoever runs it
            return outfeed.enqueue(element * 2)

    with ipu_scope("/device:IPU:0"):
        queues = data(0), queue(0)
        first = ipu_compiler.compile(lambda: piped(lambda x: x, *queues))
    with ipu_scope("/job:localhost/replica:0/task:0/device:IPU:1"):
        others = data(1), queue(1)
        second = ipu_compiler.compile(lambda: piped(lambda x: x, *others))
        with ipu_scope("cpu"):
            infeed, outfeed = data(1), queue(1)
            looped = ipu_compiler.compile(lambda: loops.repeat(2, body, infeed_queue=infeed))
    configured(auto_select_ipus=[1, 2]).configure_ipu_system()
    with recording(Recorder()) as recorder:
        run(first, second, looped)
    assert [each.job.system.count for each in recorder.programs] == [1, 2, 2]
    assert [each.run_count for each in recorder.programs] == [1, 1, 1]


@pytest.mark.usefixtures("in_graph")
def test_a_function_of_a_program_does_not_run_on_another_device():
    configured(auto_select_ipus=[1, 1]).configure_ipu_system()

    def other(x):
        with ipu_scope("/device:IPU:1"):
            return x * 2

    text = "device: expected /device:IPU:0, on which this program runs as a whole, got '/device:IPU:1': build the"
    for build in (
        lambda: ipu_compiler.compile(other, [X]),
        lambda: loops.repeat(2, other, [X]),
        lambda: piped(other, data(0), queue(0)),
    ):
        with pytest.raises(UnsupportedProgramError, match=text):
            build()
    for name in ("/device:IPU:one", "/device:IPU:-1"):
        with pytest.raises(ProgramError, match="device: expected a number after IPU, as in /device:IPU:0"):
            ipu_scope(name).__enter__()


@pytest.mark.parametrize(("infeed", "outfeed", "wrong"), [(0, 1, "infeed_queue"), (1, 0, "outfeed_queue")])
@pytest.mark.usefixtures("in_graph")
def test_queues_are_of_the_device_of_their_program(infeed, outfeed, wrong):
    configured(auto_select_ipus=[1, 1]).configure_ipu_system()
    text = (
        f"{wrong}: expected a queue with device_ordinal=1, because the program runs on /device:IPU:1, "
        "got device_ordinal=0"
    )
    with ipu_scope("/device:IPU:1"), pytest.raises(ProgramError, match=text):
        piped(lambda x: x, data(infeed), queue(outfeed))


@pytest.mark.parametrize("ordinal", [0, 1])
def test_in_the_scope_of_a_strategy_programs_and_queues_are_of_its_device(ordinal):
    configured(auto_select_ipus=[1, 2]).configure_ipu_system()
    strategy = IPUStrategy(f"/device:IPU:{ordinal}")
    with recording(Recorder()) as recorder, strategy.scope():
        infeed, outfeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat()), IPUOutfeedQueue()

        @tf.function
        def sums():
            loops.repeat(2, lambda x: outfeed.enqueue(tf.reduce_sum(x)), infeed_queue=infeed)

        strategy.run(sums)
    assert np.ravel(outfeed.dequeue()).tolist()[:2] == [1, 5]
    assert (infeed.ordinal, outfeed.ordinal) == (ordinal, ordinal)
    assert recorder.programs[0].job.system.count == 1 + ordinal


def test_a_name_of_the_host_has_no_ipus():
    configured(auto_select_ipus=[1, 1]).configure_ipu_system()
    for function in (utils.get_num_of_ipus_in_device, IPUStrategy):
        with pytest.raises(ProgramError, match="ipu_device: expected an IPU device, such as /device:IPU:0"):
            function("/cpu:0")
