"""Run collectives among instances, which are simulated hosts: Graphcore's ``ipu.distributed``.

The functions are Horovod's, as in Graphcore's releases for TensorFlow 1, and also take the arguments of Graphcore's
releases for TensorFlow 2.
"""

from __future__ import annotations

from typing import Any, Final

from ipusim.ipu import horovod
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.horovod import Average, Sum, init, local_rank, local_size, rank, shutdown, size
from ipusim.ipu.runtime.distribute import reduce_op_of

__all__ = [
    "Average",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "init",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]

tf = load()
_OPERATIONS: Final = {tf.distribute.ReduceOp.SUM: horovod.Sum, tf.distribute.ReduceOp.MEAN: horovod.Average}


def allgather(value: Any, tensor_name: str | None = None) -> Any:
    """Concatenate the tensors of all hosts along the first axis.

    Args:
        value: this host's tensor; a single number counts as a tensor of one element.
        tensor_name: collective's name, equal on all hosts.

    Raises:
        ProgramError: if tensors differ in type or in an axis other than the first.
    """
    tensor = tf.convert_to_tensor(value)
    return horovod.allgather(tensor if tensor.shape.rank else tensor[None], tensor_name)


def allreduce(
    value: Any,
    reduce_op: Any = None,
    tensor_name: str | None = None,
    op: horovod.Operation | None = None,
) -> Any:
    """Reduce a tensor over all hosts.

    Args:
        value: this host's tensor.
        reduce_op: ``tf.distribute.ReduceOp``, or a Horovod operation; by default the average.
        tensor_name: without effect: hosts reduce in the same order.
        op: the operation, under Horovod's argument name.

    Raises:
        ProgramTypeError: unless value is a tensor and the reduction an operation.
        ProgramError: for tensors of different shapes or types, or averages of whole numbers.
    """
    operation = reduce_op if op is None else op
    if operation is not None and not isinstance(operation, horovod.Operation):
        operation = _OPERATIONS[reduce_op_of("reduce_op", operation)]
    return horovod.allreduce(value, operation)


def broadcast(value: Any, root_rank: int = 0, tensor_name: str | None = None) -> Any:
    """Return the tensor of the host with rank ``root_rank``.

    Args:
        value: this host's tensor.
        root_rank: rank of the sending host.
        tensor_name: collective's name, equal on all hosts.

    Raises:
        ProgramTypeError: unless value is a tensor and root_rank a rank.
        ProgramError: if root_rank is out of range, or if tensors differ in shape or type.
    """
    return horovod.broadcast(value, root_rank, tensor_name)
