"""A Keras model's program: the pipeline or loop that fit, evaluate or predict runs, and the weights in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ipusim.api import Array, checkpoint
from ipusim.base.errors import FileError, ProgramError
from ipusim.ipu import loops, pipelining_ops
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipusim.ipu.optimizers.gradient_accumulation_optimizer import GradientAccumulationOptimizerV2
from ipusim.ipu.runtime.building import collect
from ipusim.ipu.runtime.host import Running
from ipusim.ipu.runtime.optimizer import Optimizer as AnyOptimizer
from ipusim.ipu.runtime.per_example_loss import concrete
from ipusim.ipu.runtime.run import Pipeline
from ipusim.ipu.runtime.structures import leaves
from ipusim.ipu.tensorflow.keras.data import Element
from ipusim.ipu.tensorflow.keras.graph import Graph
from ipusim.ipu.tensorflow.keras.objective import Objective
from ipusim.ipu.tensorflow.keras.optimizers import Optimizer
from ipusim.ipu.tensorflow.keras.symbolic import Node, tensors

if TYPE_CHECKING:
    from ipusim.ipu.keras.options import Options


class Source:
    """Elements for an infeed, of one epoch after another."""

    def __init__(self) -> None:
        """Begin with none."""
        self.current: Iterator[tuple[Array, ...]] = iter(())

    def __iter__(self) -> Iterator[tuple[Array, ...]]:
        """Go on."""
        return self

    def __next__(self) -> tuple[Array, ...]:
        """Return the next element of the epoch that runs."""
        return next(self.current)


class TrainingState(NamedTuple):
    """The state, beside the weights, from which a program of the same model continues a training.

    Attributes:
        arrays: the optimizer's, by name.
        batches: those that all replicas have trained with so far, on which random draws go on.
    """

    arrays: Mapping[str, Array]
    batches: int


class Program:
    """A program, and what it has of the model's weights.

    Attributes:
        pipeline: the program.
        source: of its elements.
        steps: batches of one execution and replica.
        summed: micro-batches that an element of the outfeed is the sum of.
    """

    def __init__(
        self, task: Task, options: Options, steps: int, source: Source, optimizer: AnyOptimizer | None
    ) -> None:
        """Lay it out; the first element is read from ``source`` for its shapes. Raises as pipelines and loops do."""
        self._task, self.source, self.steps = task, source, steps
        self._outfeed = IPUOutfeedQueue(**options.outfeed)
        self._infeed = IPUInfeedQueue(source, **options.infeed)
        self.summed = 1
        build = self._pipelined if options.is_pipelined else self._looped
        _, programs = collect(build, (options, optimizer))
        (result,) = programs
        assert isinstance(result, Pipeline)
        self.pipeline, self._optimizer = result, optimizer
        self.take_device()

    def take_device(self) -> None:
        """Lay the program out on the device that is configured now; raises as pipelines and loops do."""
        self.pipeline.take_layout()
        self.pipeline.dequeue_at_once()
        if isinstance(self._optimizer, Optimizer):
            self._optimizer.replicas = self.replicas

    @property
    def replicas(self) -> int:
        """The replicas that it runs on."""
        return self.pipeline.replicas

    def state(self) -> TrainingState:
        """Return the state from which another program of the model can continue."""
        session = self.pipeline.session
        result = {
            name: array
            for name, array in checkpoint.arrays_of(session).items()
            if name.startswith(checkpoint.OPTIMIZER)
        }
        return TrainingState(result, session.elements)

    def go_on_from(self, state: TrainingState) -> None:
        """Go on from where another program of the model was; raises ProgramError for arrays of another form."""
        session = self.pipeline.session
        try:
            checkpoint.set_arrays_of(session, state.arrays, lambda name: name in state.arrays)
        except FileError as error:
            raise ProgramError(f"the optimizer's arrays that the training is to go on from are {error}") from error
        item = session.job.program.shape.micro_batches * self.replicas
        session.executions = -(-state.batches // item)

    def _pipelined(self, options: Options, optimizer: AnyOptimizer | None) -> None:
        task, graph = self._task, self._task.model.graph
        assert graph is not None
        assert options.stage_of is not None
        count = options.accumulation if optimizer is not None else self.steps
        sums = bool(options.accumulate_outfeed) and task.objective is not None
        self.summed = count if sums else 1
        arguments = dict(options.pipelining)
        if optimizer is None:  # an inference recomputes nothing, and has no weight update
            for name in _OF_TRAINING:
                arguments.pop(name, None)

        def learn(loss: Any, *_: Any) -> Any:
            assert optimizer is not None
            return pipelining_ops.OptimizerFunctionOutput(CrossReplicaOptimizer(optimizer), loss)

        pipelining_ops.pipeline(
            stages(task, graph, options.stage_of(graph)),
            gradient_accumulation_count=count,
            repeat_count=self.steps // count,
            infeed_queue=self._infeed,
            outfeed_queue=self._outfeed,
            optimizer_function=None if optimizer is None else learn,
            device_mapping=options.device_mapping,
            accumulate_outfeed=sums,
            **({} if optimizer is None else {"reduction_method": options.reduction_method}),
            **arguments,
        )

    def _looped(self, options: Options, optimizer: AnyOptimizer | None) -> None:
        wrapped: AnyOptimizer | None = None if optimizer is None else CrossReplicaOptimizer(optimizer)
        if wrapped is not None and options.accumulation > 1:
            wrapped = GradientAccumulationOptimizerV2(
                wrapped, options.accumulation, reduction_method=options.reduction_method, **options.accumulating
            )

        def body(*arrays: Any) -> Any:
            result = self._task.body(*arrays)
            self._outfeed.enqueue(result)
            return None if wrapped is None else wrapped.minimize(result[0])

        loops.repeat(self.steps, body, [], self._infeed)

    def run(self) -> list[Array]:
        """Run one execution; return what has come, each as [elements, ...] or [elements, replicas, ...]."""
        self.pipeline.run()
        result = Running().values(self._outfeed.dequeue())
        return result if isinstance(result, list) else [result]

    def run_telling(self, on_results: Callable[[int, Sequence[Any]], object]) -> None:
        """Run one execution; ``on_results`` is called with each step and its outputs, in another thread meanwhile."""
        polling = Polling(self._outfeed, self.steps, on_results)
        try:
            self.pipeline.run()
        except BaseException:
            polling.cancel()
            raise
        polling.finish()

    @property
    def seconds(self) -> float:
        """The simulated time of the last execution."""
        timeline = self.pipeline.timeline
        return timeline.makespan_cycles / timeline.info.clock_hz


#: Arguments of a pipeline that are about training alone.
_OF_TRAINING = (
    "gradient_accumulation_dtype",
    "recomputation_mode",
    "backward_propagation_stages_poplar_options",
    "weight_update_poplar_options",
    "offload_weight_update_variables",
    "offload_gradient_accumulation_buffers",
    "replicated_optimizer_state_sharding",
)


#: Seconds between two looks at a queue in which nothing was.
_PAUSE_S: Final = 0.001


class Polling:
    """Tells of each element that comes, in a thread of its own, until all have come or it is cancelled."""

    def __init__(
        self, queue: IPUOutfeedQueue, elements: int, on_results: Callable[[int, Sequence[Any]], object]
    ) -> None:
        """Begin; ``on_results`` is called with the number of an element and its arrays."""
        self._queue, self._elements, self._on_results = queue, elements, on_results
        self._cancelled = Event()
        self._error: BaseException | None = None
        context = copy_context()
        # A daemon, so that an interrupted process ends while a callback still runs.
        self._thread = Thread(target=lambda: context.run(self._poll), daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        number = 0
        try:
            while number < self._elements:
                result = list(self._queue)
                for element in result:
                    self._on_results(number, element if isinstance(element, list) else [element])
                    number += 1
                if not result:
                    if self._cancelled.is_set():
                        return
                    time.sleep(_PAUSE_S)
        except BaseException as error:  # whatever a callback raises is raised where fit was called
            self._error = error

    def finish(self) -> None:
        """Wait until all have been told of; raises what a callback has raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End when nothing is left to be told of, and wait for that."""
        self._cancelled.set()
        self._thread.join()


class Computing(Protocol):
    """A model, as its task knows it."""

    @property
    def graph(self) -> Graph | None:
        """Its calls, where they are known."""
        ...

    def output_names_of(self, outputs: Any) -> tuple[str, ...]:
        """Return the names of outputs."""
        ...

    def __call__(self, inputs: Any, training: bool | None = None) -> Any:
        """Return what it gives."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """The computation of each batch: training, evaluation or prediction.

    Attributes:
        model: with which.
        element: what a batch consists of.
        objective: the losses and metrics; None where the outputs themselves are wanted.
        training: whether it trains.
    """

    model: Computing
    element: Element
    objective: Objective | None
    training: bool

    def body(self, *arrays: Any) -> list[Any]:
        """Return the results of a batch's arrays: the loss and statistics, or the outputs."""
        x, y, weights = self.element.unpack(arrays)
        return self.result(self.model(x, training=self.training), y, weights)

    def result(self, outputs: Any, y: Any, weights: Any) -> list[Any]:
        """Return what outputs give, with labels and weights."""
        if self.objective is None:
            return [concrete(leaf) for leaf in leaves(outputs)]
        names = self.model.output_names_of(outputs)
        y_pred = list(outputs.values()) if isinstance(outputs, dict) else outputs
        return self.objective.terms(names, y, y_pred, weights)


def stages(task: Task, graph: Graph, stage_of: Sequence[int]) -> list[Callable[..., Any]]:
    """Return the function of each stage, where ``stage_of`` has that of each call of the graph.

    What later stages need of tensors goes from stage to stage, and behind it labels and weights.
    """
    count = max(stage_of, default=0) + 1
    of = [[node for node, at in zip(graph.nodes, stage_of, strict=True) if at == stage] for stage in range(count)]
    travels = [_alive(graph, of, stage) for stage in range(count)]
    parts = task.element.y, task.element.sample_weight
    beside = [index for part in parts if part is not None for index in leaves(part)]
    taken = [None, *travels[:-1]]
    return [
        _Stage(task, graph, nodes, takes, gives, beside, nodes is of[-1])
        for nodes, takes, gives in zip(of, taken, travels, strict=True)
    ]


@dataclass(frozen=True, eq=False, repr=False)
class _Stage:
    """The function of one stage, which takes tensors of the one before, None in the first, and gives tensors."""

    task: Task
    graph: Graph
    nodes: list[Node]
    takes: list[int] | None
    gives: list[int]
    beside: list[int]
    is_last: bool

    def __call__(self, *arrays: Any) -> Any:
        task, graph = self.task, self.graph
        if self.takes is None:
            x, _, _ = task.element.unpack(arrays)
            values, beside = graph.input_values(x), [arrays[index] for index in self.beside]
        else:
            count = len(self.takes)
            values, beside = dict(zip(self.takes, arrays[:count], strict=True)), list(arrays[count:])
        graph.run(values, self.nodes, task.training)
        if not self.is_last:
            return (*(concrete(values[give]) for give in self.gives), *beside)
        _, y, weights = replace(task.element, x=None).unpack(dict(zip(self.beside, beside, strict=True)))
        return task.result(graph.result(values), y, weights)


def _alive(graph: Graph, of: list[list[Node]], stage: int) -> list[int]:
    """Return the tensors that are there after a stage and needed by later ones, in the order in which they came."""
    there = [id(tensor) for tensor in tensors(graph.inputs)]
    there += [id(tensor) for nodes in of[: stage + 1] for node in nodes for tensor in tensors(node.outputs)]
    needed = {id(tensor) for tensor in tensors(graph.outputs)}
    needed |= {id(input_) for nodes in of[stage + 1 :] for node in nodes for input_ in node.inputs}
    return [fromkey for fromkey in dict.fromkeys(there) if fromkey in needed]
