"""Graphcore's ``ipu.distributed`` and PopDist's strategy, on simulated hosts."""

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError
from ipusim.machine.hosts import run_together
from tests.programs import needs_tensorflow, on_hosts

needs_tensorflow(at_import=True)

from ipusim.ipu import distributed  # noqa: E402 - as above
from ipusim.ipu.graph.tensorflow_import import load  # noqa: E402 - which needs TensorFlow

tf = load()
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


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


@pytest.mark.parametrize(
    "collective",
    [
        lambda x, name: distributed.allgather(x, tensor_name=name),
        lambda x, name: distributed.broadcast(x, 0, tensor_name=name),
    ],
)
def test_hosts_must_agree_on_the_name_of_a_collective(collective):
    with pytest.raises(ProgramStateError, match=r"host 0 waits for all hosts in \S+ of 'a', but host 1 in \S+ of 'b'"):
        run_together([lambda: collective(np.ones(2), "ab"[distributed.rank()])] * 2)


def test_one_host_has_its_own_tensor():
    assert distributed.allgather(np.ones(2)).numpy().tolist() == [1, 1]
    assert distributed.allgather(3.0).numpy().tolist() == [3]
    assert distributed.allreduce(np.float32(2), SUM) == distributed.broadcast(np.float32(2)) == 2
    assert (distributed.size(), distributed.rank()) == (1, 0)


@pytest.mark.parametrize(
    ("operation", "kind", "text"),
    [
        ("product", ProgramError, "reduce_op: expected SUM or MEAN"),
        (1, ProgramTypeError, "reduce_op: expected tf.dist"),
    ],
)
def test_what_hosts_cannot_reduce_by_is_refused(operation, kind, text):
    with pytest.raises(kind, match=text):
        distributed.allreduce(np.float32(1), operation)


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
