"""Several simulated hosts in the names of Horovod, PopDist and TensorFlow: what they do together, and who they are."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import config, utils
from ipusim.machine.hosts import run_together
from tests.effort import share
from tests.programs import needs_tensorflow, on_hosts

needs_tensorflow(at_import=True)

from ipusim.ipu import distributed  # noqa: E402 - which needs TensorFlow
from ipusim.ipu import horovod as hvd  # noqa: E402 - as above
from ipusim.ipu.graph.tensorflow_import import load  # noqa: E402 - which needs TensorFlow
from ipusim.ipu.host_strategies import (  # noqa: E402 - as above
    IPUHorovodStrategy,
    IPUMultiReplicaStrategy,
    IPUMultiWorkerStrategy,
    compute_average_loss,
)
from ipusim.ipu.runtime import distribute  # noqa: E402 - as above

tf = load()
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
REDUCED = {
    hvd.Sum: lambda stacked: stacked.sum(0, stacked.dtype),
    hvd.Min: lambda stacked: stacked.min(0),
    hvd.Max: lambda stacked: stacked.max(0),
    hvd.Product: lambda stacked: stacked.prod(0, stacked.dtype),
}
DTYPES = st.sampled_from([np.float16, np.float32, np.float64, np.int32])


@settings(deadline=None, max_examples=share(40))
@given(data=st.data(), hosts=st.integers(1, 4), dtype=DTYPES)
def test_they_give_numpys_results(data, hosts, dtype):
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=3, max_side=4))
    whole = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-4, 5, (hosts, *shape)).astype(dtype)
    rows = data.draw(st.lists(st.integers(0, 3), min_size=hosts, max_size=hosts))
    tables = [np.full((count, 2), rank, dtype) for rank, count in enumerate(rows)]
    root = data.draw(st.integers(0, hosts - 1))

    def program():
        mine = whole[hvd.rank()]
        found = {each: hvd.allreduce(mine, each) for each in REDUCED}
        average = hvd.allreduce(mine) if np.issubdtype(dtype, np.floating) else None
        return found, average, hvd.allgather(tables[hvd.rank()]), hvd.broadcast(mine, root, name="mine")

    for found, average, gathered, sent in run_together([program] * hosts):
        for each, reduce in REDUCED.items():
            assert found[each].dtype.as_numpy_dtype == dtype
            np.testing.assert_array_equal(found[each], reduce(whole))
        if average is not None:
            np.testing.assert_allclose(average, whole.mean(0), rtol=1e-3, atol=1e-3)
            assert average.dtype.as_numpy_dtype == dtype
        np.testing.assert_array_equal(gathered, np.concatenate(tables))
        np.testing.assert_array_equal(sent, whole[root])


def test_who_a_host_is():
    def program():
        hvd.init()
        where = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()
        return where, hvd.is_initialized(), hvd.shutdown()

    assert run_together([program] * 2) == [((r, 2, 0, 1, r, 2), True, None) for r in range(2)]
    assert (hvd.rank(), hvd.size()) == (0, 1)
    np.testing.assert_array_equal(hvd.allreduce([1.0, 2.0]), [1, 2])


def test_rows_of_a_tensor_are_gathered():
    def program():
        rank = hvd.rank()
        return hvd.allreduce(tf.IndexedSlices(tf.fill((rank + 1, 2), 6.0), tf.range(rank + 1))), hvd.allreduce(
            tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([rank])), op=hvd.Sum
        )

    for average, total in run_together([program] * 2):
        np.testing.assert_array_equal(average.values, np.full((3, 2), 3.0))
        np.testing.assert_array_equal(average.indices, [0, 0, 1])
        np.testing.assert_array_equal(total.values, [[1], [1]])
        np.testing.assert_array_equal(total.indices, [0, 1])


SESSION = """
fed = tf.placeholder(np.float32, [1, 2])
asked = {
    "mean": hvd.allreduce(fed),
    "rows": hvd.allgather(fed * 2, name="rows"),
    "first": hvd.broadcast(fed, 0),
    "sum": IPUHorovodStrategy().reduce("sum", fed, axis=0),
    "axis": IPUHorovodStrategy().reduce(tf.distribute.ReduceOp.MEAN, fed, axis=0),
}

def program():
    found = []
    with tf.Session() as session:
        for value in (0, 10):
            found.append(session.run(asked, {fed: np.full((1, 2), value + hvd.rank())}))
    return found, asked["rows"].shape.as_list()
"""


def test_tensors_of_a_session():
    for found, shape in on_hosts(SESSION, 3):
        assert shape == [None, 2]
        for value, each in zip((0, 10), found, strict=True):
            np.testing.assert_array_equal(each["mean"], np.full((1, 2), value + 1))
            np.testing.assert_array_equal(each["rows"], [[2 * (value + rank)] * 2 for rank in range(3)])
            np.testing.assert_array_equal(each["first"], np.full((1, 2), value))
            np.testing.assert_array_equal(each["sum"], [3 * value + 3] * 2)
            np.testing.assert_array_equal(each["axis"], [value + 1] * 2)


#: What two hosts call, by their rank, and what is said of it.
APART = [
    (
        lambda rank: hvd.allreduce(np.ones(rank + 1)),
        r"^horovod.allreduce number 1: expected the same shape on all hosts, got \(1,\) on host 0, \(2,\) on",
    ),
    (
        lambda rank: hvd.allgather(np.ones((2, rank + 1)), name="g"),
        r"^horovod.allgather of 'g': expected the same shape on all hosts except for the first axis, got \(2, 1\)",
    ),
    (
        lambda rank: hvd.broadcast(np.ones(2, [np.float32, np.int32][rank]), 1),
        "^horovod.broadcast number 1: expected the same type on all hosts, got float32 on host 0, int32 on",
    ),
    (
        lambda rank: hvd.broadcast(np.ones(2), rank),
        "^horovod.broadcast number 1: expected the same on all hosts, got from rank 0 on host 0, from",
    ),
    (
        lambda rank: hvd.allreduce(np.ones(2), [hvd.Sum, hvd.Max][rank]),
        "expected the same on all hosts, got by sum on host 0, by max on 1$",
    ),
    (
        lambda _: hvd.allreduce(np.arange(3, dtype=np.int32)),
        "^horovod.allreduce number 1: expected floating-point numbers to average, got int32; take their sum$",
    ),
    (lambda _: hvd.allgather(1.0), "expected an array with a first axis to gather along, got a single"),
    (lambda _: hvd.broadcast(1.0, 2), "^root_rank: expected a rank from 0 to 1, got 2$"),
    (lambda _: distributed.allreduce(np.float32(1), "product"), "reduce_op: expected SUM or MEAN"),
]
#: Calls in which host 0 waits for host 1 in vain, and what is said of it.
IN_VAIN = [
    (
        lambda rank: hvd.broadcast(np.ones(2), 0, name="ab"[rank]),
        "^host 0 waits for all hosts in horovod.broadcast of 'a', but host 1 in horovod.broadcast of 'b'$",
    ),
    (
        lambda rank: rank or hvd.allreduce(1.0),
        "^host 0 waits for all hosts in horovod.allreduce number 1, but host 1 has ended$",
    ),
    *(
        (
            lambda rank, collective=collective: collective(np.ones(2), tensor_name="ab"[rank]),
            r"host 0 waits for all hosts in \S+ of 'a', but host 1 in \S+ of 'b'",
        )
        for collective in (distributed.allgather, distributed.broadcast)
    ),
]
TYPES = [(lambda _: distributed.allreduce(np.float32(1), 1), "reduce_op: expected tf.dist")]
KINDS = {ProgramError: APART, ProgramStateError: IN_VAIN, ProgramTypeError: TYPES}


@pytest.mark.parametrize(("kind", "program", "text"), [(kind, *case) for kind in KINDS for case in KINDS[kind]])
def test_what_hosts_do_not_do_together(kind, program, text):
    with pytest.raises(kind, match=text):
        run_together([lambda: program(hvd.rank())] * 2)


def test_strategies_on_one_host_change_nothing():
    for strategy in (
        IPUHorovodStrategy(),
        IPUMultiReplicaStrategy(),
        IPUMultiWorkerStrategy(distribute.cluster_resolver.TFConfigClusterResolver()),
    ):
        assert strategy.num_replicas_in_sync == 1
        assert not distribute.has_strategy()
        with strategy.scope() as found:
            assert found is strategy is distribute.get_strategy()
            np.testing.assert_allclose(compute_average_loss(np.float32([1, 3])), 2)
        assert strategy.experimental_run_v2(lambda x, y: x + y, (1,), {"y": 2}) == 3
        assert strategy.reduce("MEAN", 3.0) == 3
        np.testing.assert_array_equal(strategy.reduce("mean", np.float32([[1, 2], [3, 4]]), axis=1), [1.5, 3.5])
        assert strategy.update_config_proto(strategy) is strategy
    with (
        pytest.raises(
            ProgramStateError, match=r"^Mixing different tf\.distribute\.Strategy objects: expected the scope"
        ),
        IPUHorovodStrategy().scope(),
        IPUHorovodStrategy().scope(),
    ):
        pass


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_loss_over_the_batch_of_all_hosts(hosts):
    losses = np.float32([[1, 2], [3, 6]])

    def program():
        with IPUHorovodStrategy().scope():
            return (
                compute_average_loss(losses[0]),
                compute_average_loss(losses),
                compute_average_loss(losses[0], sample_weight=np.float32([0, 2])),
                compute_average_loss(losses[0], global_batch_size=30),
            )

    for found in run_together([program] * hosts):
        np.testing.assert_allclose(found, [1.5 / hosts, 6 / hosts, 2 / hosts, 0.1], rtol=1e-6)


def test_the_cluster_of_the_environment(monkeypatch):
    resolver = distribute.cluster_resolver.TFConfigClusterResolver

    def program():
        found = resolver()
        spec = found.cluster_spec()
        server = distribute.Server(spec, job_name=found.task_type, task_index=found.task_id, config=None)
        server.start()
        server.join()
        return found.task_type, found.task_id, spec.as_dict(), server.target + found.master()

    alone = {"worker": ["host0", "host1"]}
    assert run_together([program] * 2) == [("worker", rank, alone, "") for rank in range(2)]
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}}))
    assert run_together([program] * 2) == [("chief", 0, cluster, ""), ("worker", 0, cluster, "")]
    with pytest.raises(ProgramError, match=r"^TF_CONFIG: expected as many workers, with the chief, as there are"):
        resolver()
    with pytest.raises(ProgramError, match=r"^task_index: expected one of the 1 tasks of 'worker', got 1$"):
        distribute.Server({"worker": ["a:1"]}, "worker", 1)
    with pytest.raises(ProgramError, match=r"^No such job in cluster: 'ps'$"):
        distribute.Server({"worker": ["a:1"]}, "ps", 0)


def test_the_configuration_says_the_hosts():
    def program():
        found = IPUMultiReplicaStrategy().update_ipu_config(config.IPUConfig())
        found.check()
        asked = found.experimental.multi_replica_distribution
        return asked.process_count, asked.process_index

    assert run_together([program] * 3) == [(3, rank) for rank in range(3)]
    with pytest.raises(ProgramTypeError, match=r"^`config` must be an IPUConfig object"):
        IPUMultiReplicaStrategy().update_ipu_config(None)
    options = utils.set_experimental_multi_replica_distribution_options

    def other(count, index):
        return lambda: options(utils.create_ipu_config(), count, index).check()

    with pytest.raises(
        UnsupportedProgramError, match=r"process_count: expected 0 or 2, because 2 hosts are simulated, got 3"
    ):
        run_together([other(3, 0)] * 2)
    with pytest.raises(ProgramError, match=r"process_index: expected 1, the rank of this host, got 0$"):
        run_together([other(2, 0)] * 2)
    with pytest.raises(ProgramError, match=r"^0 <= process_index < process_count$"):
        other(2, 2)()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [((SUM,), 3), ((MEAN,), 1), (("sum",), 3), ((distributed.Sum,), 3), ((distributed.Average,), 1), ((), 1)],
)
def test_hosts_reduce_by_tensorflows_operations_and_by_horovods(operation, expected):
    def program():
        return float(distributed.allreduce(np.float32(distributed.rank()), *operation))

    assert run_together([program] * 3) == [expected] * 3


def test_hosts_gather_and_broadcast_from_the_first_unless_told():
    def program():
        own = np.full(2, distributed.rank(), np.float32)
        gathered = distributed.allgather(own, tensor_name="own")
        return gathered.numpy().tolist(), distributed.broadcast(own)[0], distributed.broadcast(own, root_rank=1)[0]

    assert run_together([program] * 2) == [([0, 0, 1, 1], 0, 1)] * 2


def test_one_host_has_its_own_tensor():
    assert distributed.allgather(np.ones(2)).numpy().tolist() == [1, 1]
    assert distributed.allgather(3.0).numpy().tolist() == [3]
    assert distributed.allreduce(np.float32(2), SUM) == distributed.broadcast(np.float32(2)) == 2
    assert (distributed.size(), distributed.rank()) == (1, 0)


INSTANCES = """
import popdist

def program():
    rank = popdist.getInstanceIndex()
    strategy = PopDistStrategy(enable_keras_extensions=False)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(rank + 1)).repeat())
    with strategy.scope():
        weight = tf.get_variable("weight", initializer=1.0, use_resource=True)

        def step(total, x):
            loss = weight * x
            return total + loss, tf.train.GradientDescentOptimizer(0.25).minimize(loss)

        def run():
            loop = lambda: ipu.loops.repeat(2, step, [0.0], infeed_queue=infeed)
            return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.experimental_run_v2(loop)) / 2

        loss = ipu.ipu_compiler.compile(run)
        with tf.Session() as session:
            session.run([infeed.initializer, tf.global_variables_initializer()])
            (found,) = session.run(loss)
            return float(found), float(session.run(weight))
"""


def test_instances_train_together_and_reduce_their_losses():
    """As Graphcore's program for PopDist: a loop on each instance, whose losses the strategy sums up.

    The gradient of both is 1 + 2: the weight goes from 1 over 0.25 to -0.5, and the losses are 3 and 0.75.
    """
    assert on_hosts(INSTANCES, 2) == [(1.875, -0.5)] * 2


MEETING = """
import popdist

def program():
    if popdist.getInstanceIndex() == 0:
        popdist.synchronize()
    {last}
    return popdist.getNumInstances()
"""


def test_instances_wait_for_each_other():
    assert on_hosts(MEETING.format(last="if popdist.getInstanceIndex(): popdist.synchronize()"), 2) == [2, 2]
    with pytest.raises(ProgramError, match=r"popdist\.synchronize"):
        on_hosts(MEETING.format(last=""), 2)
