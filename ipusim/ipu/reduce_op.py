"""How values of several hosts are reduced, in TensorFlow's names."""

from __future__ import annotations

from enum import Enum

from ipusim.ipu import checks


class ReduceOp(Enum):
    """``tf.distribute.ReduceOp``."""

    SUM = "SUM"
    MEAN = "MEAN"


def reduce_op_of(name: str, value: object) -> ReduceOp:
    """Return an operation, also by its name in any case; raises ProgramTypeError, and ProgramError for another name."""
    if isinstance(value, str):
        try:
            return ReduceOp(value.upper())
        except ValueError:
            checks.wrong_value(name, "SUM or MEAN", value)
    if not isinstance(value, ReduceOp):
        checks.wrong_type(name, "tf.distribute.ReduceOp.SUM or tf.distribute.ReduceOp.MEAN", value)
    return value
