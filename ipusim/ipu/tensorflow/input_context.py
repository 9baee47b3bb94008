"""What an input function is told of the workers: TensorFlow's ``InputContext``."""

from __future__ import annotations

from ipusim.errors import ProgramError
from ipusim.ipu import checks


class InputContext:
    """Which of several workers reads.

    Arguments:
        num_input_pipelines: the workers.
        input_pipeline_id: the number of this one.
        num_replicas_in_sync: the workers that train together.

    Raises ProgramError and ProgramTypeError for what are no whole numbers.
    """

    def __init__(self, num_input_pipelines: int = 1, input_pipeline_id: int = 0, num_replicas_in_sync: int = 1) -> None:
        """Check the arguments."""
        self._count = checks.whole("num_input_pipelines", num_input_pipelines, 1)
        self._number = checks.whole("input_pipeline_id", input_pipeline_id)
        self._in_sync = checks.whole("num_replicas_in_sync", num_replicas_in_sync, 1)

    def __repr__(self) -> str:
        """Say who reads, as TensorFlow does."""
        return f"tf.distribute.InputContext(input pipeline id {self._number}, total: {self._count})"

    @property
    def num_input_pipelines(self) -> int:
        """The workers."""
        return self._count

    @property
    def input_pipeline_id(self) -> int:
        """The number of this one."""
        return self._number

    @property
    def num_replicas_in_sync(self) -> int:
        """The workers that train together."""
        return self._in_sync

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return this worker's part of a batch; raises ProgramError in TensorFlow's words where there is none."""
        size = checks.whole("global_batch_size", global_batch_size)
        if size % self._in_sync:
            raise ProgramError(
                f"The `global_batch_size` {size} is not divisible by `num_replicas_in_sync` {self._in_sync} "
            )
        return size // self._in_sync
