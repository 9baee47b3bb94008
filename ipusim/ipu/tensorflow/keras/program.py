"""A Keras model's program: the pipeline or loop that fit, evaluate or predict runs, and the weights in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ipusim.errors import FileError, ProgramError
from ipusim.ipu import loops, pipelining_ops
from ipusim.ipu.compiling import collect
from ipusim.ipu.host import Running
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientAccumulationOptimizerV2
from ipusim.ipu.optimizers import Optimizer as AnyOptimizer
from ipusim.ipu.run import Pipeline
from ipusim.ipu.tensorflow.keras.optimizers import Optimizer
from ipusim.ipu.tensorflow.keras.polling import Polling
from ipusim.ipu.tensorflow.keras.stages import Task, stages
from ipusim.model.layers.layer import Array
from ipusim.runs.checkpoint import OPTIMIZER, arrays_of, set_arrays_of

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
    """What a training goes on from beside the weights, in a program of the same model.

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
        (found,) = programs
        assert isinstance(found, Pipeline)
        self.pipeline, self._optimizer = found, optimizer
        self.place()

    def place(self) -> None:
        """Be on the device that is configured now; raises as pipelines and loops do."""
        self.pipeline.take_layout()
        self.pipeline.dequeue_at_once()
        if isinstance(self._optimizer, Optimizer):
            self._optimizer.replicas = self.replicas

    @property
    def replicas(self) -> int:
        """The replicas that it runs on."""
        return self.pipeline.replicas

    def state(self) -> TrainingState:
        """Return what another program of the model can go on from."""
        session = self.pipeline.session
        found = {name: array for name, array in arrays_of(session).items() if name.startswith(OPTIMIZER)}
        return TrainingState(found, session.elements)

    def go_on_from(self, state: TrainingState) -> None:
        """Go on from where another program of the model was; raises ProgramError for arrays of another form."""
        session = self.pipeline.session
        try:
            set_arrays_of(session, state.arrays, lambda name: name in state.arrays)
        except FileError as error:
            raise ProgramError(f"the optimizer's arrays that the training is to go on from are {error}") from error
        each = session.job.program.shape.micro_batches * self.replicas
        session.executions = -(-state.batches // each)

    def _pipelined(self, options: Options, optimizer: AnyOptimizer | None) -> None:
        task, graph = self._task, self._task.model.graph
        assert graph is not None
        assert options.stage_of is not None
        count = options.accumulation if optimizer is not None else self.steps
        sums = bool(options.accumulate_outfeed) and task.objective is not None
        self.summed = count if sums else 1
        given = dict(options.pipelining)
        if optimizer is None:  # an inference recomputes nothing, and has no weight update
            for name in _OF_TRAINING:
                given.pop(name, None)

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
            **given,
        )

    def _looped(self, options: Options, optimizer: AnyOptimizer | None) -> None:
        wrapped: AnyOptimizer | None = None if optimizer is None else CrossReplicaOptimizer(optimizer)
        if wrapped is not None and options.accumulation > 1:
            wrapped = GradientAccumulationOptimizerV2(
                wrapped, options.accumulation, reduction_method=options.reduction_method, **options.accumulating
            )

        def body(*arrays: Any) -> Any:
            found = self._task.body(*arrays)
            self._outfeed.enqueue(found)
            return None if wrapped is None else wrapped.minimize(found[0])

        loops.repeat(self.steps, body, [], self._infeed)

    def run(self) -> list[Array]:
        """Run one execution; return what has come, each as [elements, ...] or [elements, replicas, ...]."""
        self.pipeline.run()
        found = Running().values(self._outfeed.dequeue())
        return found if isinstance(found, list) else [found]

    def run_telling(self, told: Callable[[int, Sequence[Any]], object]) -> None:
        """Run one execution; ``told`` is called with each step and what it gives, in another thread while it runs."""
        polling = Polling(self._outfeed, self.steps, told)
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
