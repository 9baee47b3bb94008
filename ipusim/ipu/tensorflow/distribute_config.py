"""Which strategies an estimator has: TensorFlow 1's ``DistributeConfig``."""

from __future__ import annotations

from typing import NamedTuple

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.host_strategy import HostStrategy


class _Fields(NamedTuple):
    train_distribute: HostStrategy | None
    eval_distribute: HostStrategy | None
    remote_cluster: object


class DistributeConfig(_Fields):
    """The strategies of a RunConfig.

    Arguments:
        train_distribute, eval_distribute: as of RunConfig.
        remote_cluster: must be None.

    Raises UnsupportedProgramError for a remote cluster.
    """

    __slots__ = ()

    def __new__(
        cls,
        train_distribute: HostStrategy | None = None,
        eval_distribute: HostStrategy | None = None,
        remote_cluster: object = None,
    ) -> DistributeConfig:
        """Check the arguments."""
        if remote_cluster is not None:
            raise UnsupportedProgramError(
                f"remote_cluster: expected None, as workers are the simulated hosts of one process, got "
                f"{remote_cluster!r}"
            )
        return super().__new__(cls, train_distribute, eval_distribute, remote_cluster)
