"""A computation without a pipeline or a loop as a program: one iteration, with host copies of inputs and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipusim.api import Array
from ipusim.base.errors import IpusimError, UnsupportedProgramError
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.devices import device_ordinal
from ipusim.ipu.runtime.function_body import device
from ipusim.ipu.runtime.host import Fetch, Running, Tensor, as_tensor, example
from ipusim.ipu.runtime.lay_out import lay_out, stopping_at_programs
from ipusim.ipu.runtime.layouts import Fed
from ipusim.ipu.runtime.loop_body import body_record, is_operation, is_training
from ipusim.ipu.runtime.loop_program import LoopProgram
from ipusim.ipu.runtime.optimizer import is_tensor
from ipusim.ipu.runtime.program_state import using
from ipusim.ipu.runtime.run import Pipeline
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.variable import plain


class TrialError(Exception):
    """A computation fails when it is tried.

    Attributes:
        error: how.
    """

    def __init__(self, error: IpusimError) -> None:
        """Take the error."""
        super().__init__(str(error))
        self.error = error


class _InputStreams(IPUInfeedQueue):
    """The host copies of a computation's inputs: the values of each run, the same for every replica."""

    def __init__(self, values: tuple[Array, ...]) -> None:
        """Take values of the inputs' shapes and dtypes."""
        super().__init__([values], prefetch_depth=1, device_ordinal=device_ordinal())
        self.values = values

    def check_started(self) -> None:
        """Accept: a run brings its values along."""

    def take(self, index: int) -> tuple[Array, ...]:
        """Return the values of the run."""
        return self.values


class CompiledComputation(Fetch):
    """A computation as a program of one iteration, laid out and checked, which runs once in each run of a session.

    Attributes:
        pipeline: the program.
        structure: what the computation returned when it was tried: tensors, and operations among them.
    """

    def __init__(
        self, computation: Callable[..., Any], inputs: Sequence[Any], *, name: str = "", at_once: bool = False
    ) -> None:
        """Try the computation on the inputs' shapes and dtypes.

        Args:
            computation: a function of ``inputs``; with ``scopes.ipu_shard`` in it, of several IPUs.
            inputs: tensors of the host, or values.
            name: the program's; by default the computation's.
            at_once: run it now, and train where it says so, as in a function of TensorFlow 2.

        Raises:
            ProgramReached: it builds a pipeline or a loop.
            TrialError: it fails when it is tried, or asks for what is not simulated.
            IpusimError: the program cannot be laid out, or run.
        """
        self._computation, self._symbols = computation, tuple(inputs)
        self.structure: Any = None
        self._results = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST, device_ordinal=device_ordinal())
        self._name, self._at_once = name or getattr(computation, "__name__", "") or "computation", at_once
        examples = [as_tensor(example(value)) for value in inputs]
        self._dtypes = [item.dtype for item in examples]
        with device(), using():
            try:
                arguments, _ = self._arguments(examples, {})
            except IpusimError as error:
                raise TrialError(error) from error
            fed = Fed(examples, self._arguments)
            self.pipeline: Pipeline = lay_out(arguments, None, None if at_once else (), fed=fed)

    def _arguments(self, values: Sequence[Array], captured: Mapping[Any, Array]) -> tuple[Arguments, None]:
        """Return the arguments of the program whose inputs have the forms of ``values``."""
        streams = _InputStreams(tuple(values)) if values else None
        with stopping_at_programs():
            program = LoopProgram(self._body, (), streams, self._at_once, captured)
        return program.arguments(1, name=self._name), None

    def results(self) -> Any:
        """Return the results of the computation, with a tensor of the host for each tensor."""
        dequeued = iter(self._results.dequeue() if self._results.enqueued else ())

        def result(value: Any) -> Any:
            return value if is_operation(value) else Result(self, next(dequeued))

        return mapped(result, self.structure)

    def run(self, inputs: Sequence[Any]) -> None:
        """Run the program again, on other inputs of the same forms."""
        self._symbols = tuple(inputs)
        self.evaluate(Running())

    @property
    def replicated(self) -> bool:
        """Whether several replicas compute each result."""
        return self.pipeline.replicas > 1

    @property
    def has_effect(self) -> bool:
        """Whether it gives results, sends some, or trains."""
        return self._results.enqueued or self.pipeline.training or self.pipeline.sends

    def values(self) -> Any:
        """Return the results of the computation in the last run."""
        dequeued = iter(self._results.dequeue() if self._results.enqueued else ())
        replicated = self.replicated

        def value(tensor: Any) -> Any:
            if is_operation(tensor):
                return None
            result = next(dequeued)
            return result[0] if replicated else result

        return mapped(value, self.structure)

    def evaluate(self, running: Running) -> None:
        """Run the program on the values that the inputs have in this run of a session."""
        items = (as_tensor(running.value(symbol)) for symbol in self._symbols)
        values = tuple(value.astype(dtype, copy=False) for value, dtype in zip(items, self._dtypes, strict=True))
        self.pipeline.take_fed(running, values)
        streams = self.pipeline.infeed
        if isinstance(streams, _InputStreams):
            streams.values = values
        self.pipeline.run()

    def _body(self, *values: Any) -> list[Any]:
        """Run the computation as the body of a loop, which sends its tensors and returns what trains."""
        self.structure = returned = self._computation(*values)
        tensors = [_tensor(leaf) for leaf in leaves(returned) if not is_operation(leaf)]
        record = body_record()
        assert record is not None
        if tensors and record.queue is not None:
            raise UnsupportedProgramError(
                "computation: expected one that enqueues to an outfeed, outside of a loop, to enqueue all its results, "
                f"got {len(tensors)} that it returns"
            )
        if tensors:
            self._results.enqueue(tensors)
        return [leaf for leaf in leaves(returned) if is_training(leaf)]


class Result(Tensor):
    """A tensor that a computation returns: its value is there when the program has run."""

    def __init__(self, computation: CompiledComputation, dequeued: Tensor) -> None:
        """Take the tensor that is dequeued; of replicas, all of which compute it, the first one's counts."""
        super().__init__(dequeued.example[0] if computation.replicated else dequeued.example)
        self._computation, self._dequeued = computation, dequeued

    def evaluate(self, running: Running) -> Array:
        """Run the program, once in a run of a session, and return the tensor's value."""
        running.value(self._computation)
        value: Array = running.value(self._dequeued)
        return value[0] if self._computation.replicated else value


def _tensor(value: Any) -> Any:
    """Return a result as a tensor: Python's own numbers become float32 and int32.

    Raises UnsupportedProgramError for what is no tensor of numbers.
    """
    from ipusim.ipu.runtime.per_example_loss import concrete  # noqa: PLC0415 - autograd takes a while to import

    outcome = concrete(plain(value))
    if isinstance(outcome, bool | int | float):
        return as_tensor(outcome)
    if not is_tensor(outcome):
        raise UnsupportedProgramError(f"computation: expected tensors and operations as its results, got {value!r}")
    return outcome
