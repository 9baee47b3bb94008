"""Collectives of PopDist's instances, which are simulated hosts, over the hosts' network."""

from __future__ import annotations

from typing import Any, Final

from ipusim.ipu import horovod
from ipusim.ipu.reduce_op import ReduceOp, reduce_op_of

_OPERATIONS: Final = {ReduceOp.SUM: horovod.Sum, ReduceOp.MEAN: horovod.Average}


def allgather(value: Any, tensor_name: str | None = None) -> Any:
    """Return the tensors of all hosts one after the other along the first axis; raises as ``horovod.allgather`` does.

    ``tensor_name`` is a name that all hosts have to agree on.
    """
    return horovod.allgather(value, tensor_name)


def allreduce(
    value: Any,
    reduce_op: ReduceOp | horovod.Operation | str | None = None,
    tensor_name: str | None = None,
    op: horovod.Operation | None = None,
) -> Any:
    """Return the tensors of all hosts reduced; raises as ``horovod.allreduce`` does.

    Args:
        value: this host's tensor.
        reduce_op: ``tf.distribute.ReduceOp``, or an operation of Horovod's; by default the average.
        tensor_name: without effect: hosts reduce in the same order.
        op: the operation by Horovod's name of the argument.
    """
    asked = reduce_op if op is None else op
    if asked is not None and not isinstance(asked, horovod.Operation):
        asked = _OPERATIONS[reduce_op_of("reduce_op", asked)]
    return horovod.allreduce(value, asked)


def broadcast(value: Any, root_rank: int = 0, tensor_name: str | None = None) -> Any:
    """Return the tensor of the host with rank ``root_rank``; raises as ``horovod.broadcast`` does.

    ``tensor_name`` is a name that all hosts have to agree on.
    """
    return horovod.broadcast(value, root_rank, tensor_name)
