"""The outfeed queue: what a pipeline sends to the host, stacked in the order in which it was sent.

Each element is there as soon as its copy to the host has ended in simulated time: another thread sees it while the run
goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import Evaluated, Fetch, Operation, Running, Tensor, compute
from ipusim.ipu.runtime.loop_body import enqueue
from ipusim.ipu.runtime.queues import BUFFER_DEPTH, IPUOutfeedMode, OutfeedArguments
from ipusim.ipu.runtime.releases import outfeed_in_any_release
from ipusim.ipu.runtime.stage_outfeeds import Arrivals, current
from ipusim.ipu.runtime.variable import waits_for_session


class Dequeued(Tensor):
    """One of the arrays that are dequeued together in a run of a session."""

    late: ClassVar[bool] = True

    def __init__(self, together: Fetch, index: int, example: Array, stacked: bool) -> None:
        """Take what dequeues all of them, the place among them, and an array of its dtype and axes.

        Where elements are ``stacked``, how many there are is known when they have come.
        """
        super().__init__(example)
        self._together, self._index, self._stacked = together, index, stacked

    def __getitem__(self, key: Any) -> Any:
        """Return a part, such as an element; raises ProgramError where there is none."""
        first, *others = key if isinstance(key, tuple) else (key,)
        tried = (0 if self._stacked and isinstance(first, int) else first, *others)

        def getitem(array: Array) -> Any:
            return array[tried if array is self.example else key]

        return compute(getitem, self)

    def evaluate(self, running: Running) -> Array:
        """Return its array."""
        array: Array = running.value(self._together)[self._index]
        return array


class IPUOutfeedQueue(OutfeedArguments):
    """Takes the results of one pipeline to the host.

    Args:
        feed_name, replication_factor, io_batch_size: of releases up to 2.1, which call them deprecated: without
            effect, as each element is sent when it is there.
        outfeed_mode: which elements are kept; ALL by default.
        device_ordinal: number of the device whose programs use it; by default that of the strategy around, else 0.
        buffer_depth: elements that the host's buffer holds.
        optimise_latency: accepted, and without effect on what is simulated.

    The arguments are in the order of SDK 2.1; by position they may be in that of later releases too, which is
    outfeed_mode, device_ordinal, buffer_depth, optimise_latency.

    Raises ProgramError (a ValueError) in Graphcore's words for what is out of range.
    """

    @outfeed_in_any_release
    def __init__(
        self,
        feed_name: str | None = None,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int | None = 0,
        replication_factor: int | None = None,
        io_batch_size: int = 1,
        *,
        buffer_depth: int = BUFFER_DEPTH,
        optimise_latency: bool = False,
    ) -> None:
        """Check the arguments; nothing is connected yet."""
        self.check(
            feed_name,
            outfeed_mode,
            device_ordinal,
            replication_factor,
            io_batch_size,
            buffer_depth,
            optimise_latency,
        )
        self._forms: tuple[tuple[tuple[int, ...], Any], ...] | None = None
        self._packing: Callable[[list[Any]], Any] = list
        self._arrivals = Arrivals(last_only=self.outfeed_mode is IPUOutfeedMode.LAST)
        #: Whether a session runs the program that sends here, so that each run of it dequeues anew.
        self.in_session = False

    @property
    def enqueued(self) -> bool:
        """Whether a program sends results here; in a stage, whether it has done so in this call of its function."""
        stage = current()
        return self._forms is not None if stage is None else stage.sends_to(self)

    def connect(
        self,
        forms: Sequence[tuple[tuple[int, ...], Any]],
        packing: Callable[[list[Any]], Any] = list,
        *,
        in_session: bool = False,
        reconnecting: bool = False,
    ) -> None:
        """Set the shapes and types of an element's arrays, the function that packs them, and how they are dequeued.

        Where the program runs ``in_session``, :meth:`dequeue` returns what dequeues in a run of it. A program that is
        laid out once more is ``reconnecting``, and sends elements of other shapes.

        Raises ProgramError when a pipeline sends its results here already.
        """
        if self.enqueued and not reconnecting:
            raise ProgramError("An outfeed can only be enqueued once.")
        self._forms, self._packing, self.in_session = tuple(forms), packing, in_session

    def receive(self, element: tuple[Array, ...]) -> None:
        """Take an element that is with the host, while the run goes on."""
        self._arrivals.put(element)

    def enqueue(self, tensors: Any) -> Operation:
        """Send tensors from the body of a loop or a stage of a pipeline: one, a tuple or list, or a dictionary of them.

        The first queue of a loop takes its results; each other one has a copy to the host in the middle of the pass.

        Raises ProgramError outside of both, and the second time in one.
        """
        return enqueue(self, tensors)

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Return the results since the last call, one array for each result: [elements, (replicas), ...].

        Without the axis of elements in the mode LAST, which returns the last element again and
        again. The axis of replicas is there when there are several. What a loop enqueues comes in the structure that
        it has there. The results of a pipeline are in a list, also a single one; its loss, if that is sent, is an array
        by itself, and a dictionary that the last stage of an inference returns is one.

        Where a session runs the program they are tensors of the host, which each run of it dequeues anew.

        Another thread than that of a run dequeues what has come so far; with ``wait_for_completion`` it waits until
        the run has ended. Raises ProgramError before a pipeline uses the queue; in the mode LAST ProgramStateError when
        it has sent nothing; and in another thread ProgramStateError where the run has failed and nothing is left.
        """
        completed = checks.truth("wait_for_completion", wait_for_completion)
        if self._forms is None:
            raise ProgramError("Trying to dequeue an outfeed which has not been enqueued.")
        if not self.in_session:
            return self._packed(self._taken(completed))
        # How many elements there will be is not known before; a tensor of the host is tried on one.
        axis = () if self.outfeed_mode is IPUOutfeedMode.LAST else (1,)
        together = Evaluated(lambda _: self._taken(completed), late=True)
        return self._packing(
            [
                Dequeued(together, index, np.zeros((*axis, *shape), dtype), bool(axis))
                for index, (shape, dtype) in enumerate(self._forms)
            ]
        )

    def _taken(self, completed: bool = False) -> list[Array]:
        assert self._forms is not None
        if self.outfeed_mode is IPUOutfeedMode.LAST:
            element = self._arrivals.last(completed)
            if element is None:
                raise ProgramStateError(
                    "Trying to get the last value from an outfeed queue before it was executed. Make sure the outfeed "
                    "dequeue TensorFlow operation is executed after the enqueue to the outfeed has completed."
                )
            return list(element)
        elements = self._arrivals.take(completed)
        return [
            np.stack([element[position] for element in elements]) if elements else np.empty((0, *shape), dtype)
            for position, (shape, dtype) in enumerate(self._forms)
        ]

    def _packed(self, arrays: Sequence[Array]) -> Any:
        """Return the results of an element, or of several; outside of sessions as TensorFlow 2 has them."""
        return self._packing([array if self.in_session else eager(array) for array in arrays])

    @property
    def deleter(self) -> Operation:
        """The operation that deletes the queue's resources: it has none that a new queue would miss."""
        return Operation("outfeed/delete")

    def __len__(self) -> int:
        """The elements that wait to be dequeued."""
        return len(self._arrivals)

    def __bool__(self) -> bool:
        """A queue is there, also when nothing waits in it."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Dequeue element by element what has come so far, before a pipeline uses the queue nothing.

        Raises ProgramStateError in the mode LAST, and as :meth:`dequeue` does.
        """
        if self.outfeed_mode is not IPUOutfeedMode.ALL:
            raise ProgramStateError(
                "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'."
            )
        if waits_for_session():
            raise ProgramStateError("IPUOutfeedQueue can only be iterated over in eager mode.")
        return iter([self._packed(element) for element in self._arrivals.take()])


def sending_to(queue: IPUOutfeedQueue | None) -> AbstractContextManager[None]:
    """Return a context in which a program that sends to ``queue``, if to any, is built or runs."""
    return nullcontext() if queue is None else queue._arrivals.sending()


class EagerArray(np.ndarray[Any, Any]):
    """An array, with what TensorFlow's tensors have beside.

    What is computed of it and of Python's numbers is another one; of it and any other array a plain array.
    """

    def numpy(self) -> Any:
        """Return the value: a plain array, or the number of an array without axes."""
        return np.asarray(self)[()]

    def __repr__(self) -> str:
        """Say what a plain array says."""
        return repr(np.asarray(self))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Compute on plain arrays."""
        if out is not None:
            options["out"] = tuple(map(_plain, out))
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        same = all(
            isinstance(input_, EagerArray | int | float) and not isinstance(input_, np.generic) for input_ in inputs
        )
        if out is not None:
            return out[0] if len(out) == 1 else out
        return eager(result) if same and isinstance(result, np.ndarray | np.generic) else result


def eager(value: Any) -> EagerArray:
    """Return an array, or a number of NumPy's, as such a result, which shares its memory."""
    return np.asarray(value).view(EagerArray)


def _plain(value: Any) -> Array | Any:
    return np.asarray(value) if isinstance(value, EagerArray) else value
