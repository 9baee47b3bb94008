"""Extend Keras models by pipeline stages of layers and by execution options, as Graphcore does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar, NoReturn

from ipusim.base.errors import ProgramError, ProgramStateError, UnsupportedProgramError
from ipusim.ipu.keras.assignment_checks import check_in_order, check_size, checked_stages
from ipusim.ipu.keras.options import (
    AUTOMATIC,
    INVALID,
    Options,
    check_accumulating,
    check_accumulation_steps,
    check_device_mapping,
    check_options,
    check_pipelining,
)
from ipusim.ipu.keras.pipeline_stages import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    PipelineStage,
    SequentialLayerPipelineStageAssignment,
    row,
)
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "ModelExtension",
    "ModelLayerPipelineStageAssignment",
    "PipelineStage",
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
]


class _Extension:
    """Options common to all models."""

    #: Columns of a summary: names, and ends as shares of a line.
    _columns: ClassVar[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Pass the arguments on to the model."""
        super().__init__(*args, **kwargs)

    @property
    def options(self) -> Options:
        """Options of the model."""
        result: Options = self.__dict__.setdefault("_options", Options())
        return result

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Set whether callbacks run after every step, or after an execution of several steps.

        Without effect in fit and evaluate of a pipelined model with ``accumulate_outfeed=True``.
        """
        self.options.asynchronous = checks.truth("asynchronous", asynchronous)

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method: Any = "sum",
        **gradient_accumulation_optimizer_kwargs: Any,
    ) -> None:
        """Accumulate gradients of several batches in training without a pipeline.

        Args:
            gradient_accumulation_steps_per_replica: batches per weight update and replica, a divisor of
                steps_per_execution.
            gradient_accumulation_reduction_method: sum, mean or running mean of the gradients.
            gradient_accumulation_optimizer_kwargs: arguments of GradientAccumulationOptimizerV2.

        Raises ProgramError and ProgramTypeError with Graphcore's message if Graphcore has any.
        """
        method = GradientAccumulationReductionMethod.parse(gradient_accumulation_reduction_method)
        check_accumulation_steps(gradient_accumulation_steps_per_replica)
        check_accumulating(gradient_accumulation_optimizer_kwargs)
        self.options.change(reduction_method=method, accumulating=gradient_accumulation_optimizer_kwargs)
        if gradient_accumulation_steps_per_replica is not None:
            self.options.change(accumulation_steps=gradient_accumulation_steps_per_replica)

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method: Any = "sum",
        **pipelining_kwargs: Any,
    ) -> None:
        """Set the execution options of a pipelined model.

        Args:
            gradient_accumulation_steps_per_replica: batches per weight update and replica, a divisor of
                steps_per_execution; required for training.
            device_mapping: IPU per stage.
            accumulate_outfeed: whether to sum results over an execution of the pipeline before sending them.
            gradient_accumulation_reduction_method: sum, mean or running mean of the gradients.
            pipelining_kwargs: other arguments of ``pipelining_ops.pipeline``.

        Raises ProgramError and ProgramTypeError with Graphcore's message if Graphcore has any.
        """
        method = GradientAccumulationReductionMethod.parse(gradient_accumulation_reduction_method)
        check_accumulation_steps(gradient_accumulation_steps_per_replica)
        check_device_mapping(device_mapping)
        check_pipelining(pipelining_kwargs)
        sums_outfeed = None if accumulate_outfeed is None else checks.truth("accumulate_outfeed", accumulate_outfeed)
        self.options.change(reduction_method=method, pipelining=pipelining_kwargs)
        arguments = {
            "pipelining_steps": gradient_accumulation_steps_per_replica,
            "device_mapping": device_mapping,
            "accumulate_outfeed": sums_outfeed,
        }
        self.options.change(**{name: value for name, value in arguments.items() if value is not None})

    def set_infeed_queue_options(self, **kwargs: Any) -> None:
        """Set arguments of the infeed queues in fit, evaluate and predict, such as ``prefetch_depth``.

        Raises ProgramError for arguments that Keras sets, and ProgramTypeError for unknown arguments.
        """
        queue, names_refused = "ipusim.ipu.ipu_infeed_queue:IPUInfeedQueue", ("dataset", "infeed_spec", "element_spec")
        check_options("set_infeed_queue_options", "kwargs", kwargs, queue, dict.fromkeys(names_refused, AUTOMATIC))
        self.options.change(infeed=kwargs)

    def set_outfeed_queue_options(self, **kwargs: Any) -> None:
        """Set arguments of the outfeed queues in fit, evaluate and predict, such as ``buffer_depth``.

        Raises ProgramError for arguments that Keras sets, and ProgramTypeError for unknown arguments.
        """
        queue, names_refused = "ipusim.ipu.ipu_outfeed_queue:IPUOutfeedQueue", ("outfeed_mode", "device_ordinal")
        check_options("set_outfeed_queue_options", "kwargs", kwargs, queue, dict.fromkeys(names_refused, INVALID))
        self.options.change(outfeed=kwargs)

    def export_for_ipu_serving(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: ipusim has no compiled executable to export. Raises UnsupportedProgramError."""
        raise UnsupportedProgramError("export_for_ipu_serving: there is no compiled executable; save() keeps the model")

    def reset_pipeline_stage_assignment(self) -> None:
        """Remove the assignment: the model is no longer pipelined."""
        self.__dict__["_assigned"] = []
        self.options.change(stage_of=None)

    def _assign(self, assignment: list[Any], stage_of: Callable[[Any], Sequence[int]]) -> None:
        """Set an assignment, and the function from calls to stages."""
        self.__dict__["_assigned"] = assignment
        self.options.change(stage_of=stage_of)

    def print_pipeline_stage_assignment_summary(
        self, line_length: int | None = None, print_fn: Callable[[str], object] | None = None
    ) -> None:
        """Print a table of layers, or of calls of layers, with pipeline stages.

        Args:
            line_length: columns per line, by default suitable for a terminal of 80.
            print_fn: function called with every line; by default ``print``.
        """
        length = 78 if line_length is None else checks.whole("line_length", line_length, 1)
        print_line = print if print_fn is None else print_fn
        ends = [int(length * share) for _, share in self._columns]
        print_line(f'Model: "{self.name}"')  # type: ignore[attr-defined]
        print_line("_" * length)
        print_line(row(tuple(name for name, _ in self._columns), ends))
        print_line("=" * length)
        rows = [self._cells(item) for item in self.get_pipeline_stage_assignment()]
        for number, cells in enumerate(rows, 1):
            for cell in cells:
                print_line(row(cell, ends))
            print_line(("=" if number == len(rows) else "_") * length)

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """Return the assignment; implemented by subclasses."""
        raise NotImplementedError

    def _cells(self, assignment: Any) -> list[tuple[str, ...]]:
        """Return the table rows of an assignment; implemented by subclasses."""
        raise NotImplementedError


class SequentialExtension(_Extension):
    """Pipeline stages of a Sequential model's layers."""

    _columns: ClassVar[Any] = (("Layer (type)", 0.6), ("Pipeline Stage", 1.0))

    def get_pipeline_stage_assignment(self) -> list[SequentialLayerPipelineStageAssignment]:
        """Return a copy of the assignment; before an assignment, all layers have no stage."""
        layers = self.layers  # type: ignore[attr-defined]
        assignment = self.__dict__.get("_assigned")
        return copy(assignment) if assignment else [SequentialLayerPipelineStageAssignment(layer) for layer in layers]

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Assign layers in order to stages, by a list of numbers or assignments.

        fit, evaluate and predict then run the model as a pipeline; calling the model ignores stages.

        Raises ProgramError with Graphcore's message for an invalid assignment.
        """
        value, layers = pipeline_stage_assignment, self.layers  # type: ignore[attr-defined]
        check_size(value, len(layers), "number of layers", "Each layer in a Sequential model", ".")
        if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            pairs = zip(layers, value, strict=True)
            value = [SequentialLayerPipelineStageAssignment(layer, stage) for layer, stage in pairs]
        if not all(isinstance(item, SequentialLayerPipelineStageAssignment) for item in value):
            raise ProgramError(
                "All elements of `pipeline_stage_assignment` need to be instances of either `int` or "
                "`SequentialLayerPipelineStageAssignment`."
            )
        check_in_order(value, layers)
        assignment = list(value)

        def stage_of(_: Any) -> list[int]:
            if [element.layer for element in assignment] != self.layers:  # type: ignore[attr-defined]
                raise ProgramStateError(
                    "The layers of the pipelined Sequential model have changed: you need to call "
                    "`set_pipeline_stage_assignment()` before executing again."
                )
            return [element.pipeline_stage for element in assignment]

        self._assign(assignment, stage_of)

    def assign_stages(self, stages: list[int]) -> None:
        """Assign layers to stages by number, in order of layers; raises ProgramError for an invalid assignment."""
        self.set_pipeline_stage_assignment(list(stages))

    def _cells(self, assignment: Any) -> list[tuple[str, ...]]:
        layer = assignment.layer
        return [(f"{layer.name} ({type(layer).__name__})", str(assignment.pipeline_stage))]


class _GraphExtension(_Extension):
    """Pipeline stages of the calls in a model's graph."""

    _columns: ClassVar[Any] = (("Layer (type) (node index)", 0.5), ("Input Layers", 0.78), ("Pipeline Stage", 1.0))
    _kind: ClassVar[Any]
    #: Reason why a symbolic call of the model failed; empty without such a failure.
    untraceable: str = ""

    def _calls(self) -> Sequence[Any]:
        """Return the calls of layers; raises ProgramError if they are not known."""
        graph = self.graph  # type: ignore[attr-defined]
        if graph is None:
            reason = self.untraceable
            raise ProgramError(
                f"The calls of layers in model {self.name!r} are not known: "  # type: ignore[attr-defined]
                + (f"call() cannot be called on symbolic tensors: {reason}" if reason else "call build() first")
            )
        return graph.nodes  # type: ignore[no-any-return]

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """Return a copy of the assignment; before an assignment, all calls have no stage."""
        assignment = self.__dict__.get("_assigned")
        return copy(assignment) if assignment else [self._kind(node.layer, node.index) for node in self._calls()]

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Assign the calls of layers to stages, one assignment per call.

        fit, evaluate and predict then run the model as a pipeline; calling the model ignores stages.

        Raises ProgramError with Graphcore's message for an invalid assignment.
        """
        value, calls = pipeline_stage_assignment, self._calls()
        number, invocation = "total number of invocations of layers", "Each invocation of a layer in a model"
        check_size(value, len(calls), number, invocation, " (excluding input layers).")
        if not all(isinstance(item, self._kind) for item in value):
            raise ProgramError(
                f"All elements of `pipeline_stage_assignment` need to be instances of `{self._kind.__name__}`."
            )
        assignment = list(value)
        checked_stages(assignment, calls)
        self._assign(assignment, lambda nodes: checked_stages(assignment, nodes))

    def assign_stages(self, stages: list[int]) -> None:
        """Assign calls to stages by number, in order of calls; raises ProgramError for an invalid assignment."""
        pairs = zip(self._calls(), stages, strict=True)
        self.set_pipeline_stage_assignment([self._kind(node.layer, node.index, stage) for node, stage in pairs])

    def _take_scopes(self) -> None:
        """Assign calls to stages by surrounding scopes, if any call has a scope.

        Raises ProgramError for a call without a scope, or for stages that form no pipeline.
        """
        calls = self._calls()
        if all(node.pipeline_stage is None for node in calls):
            return
        for node in calls:
            if node.pipeline_stage is None:
                raise ProgramError(
                    "All layers of a pipelined model must have an associated pipeline stage. However, "
                    f"{node.layer.name} has not been assigned to one. Pipeline stages can be assigned when a layer is "
                    "constructed, or each time a layer is called. Different pipeline stages can assigned to each call."
                )
        self.set_pipeline_stage_assignment([self._kind(node.layer, node.index, node.pipeline_stage) for node in calls])

    def _cells(self, assignment: Any) -> list[tuple[str, ...]]:
        layer, predecessors = assignment.layer, assignment.inbound_layers
        names = [item.name for item in (predecessors if isinstance(predecessors, list) else [predecessors])]
        first = f"{layer.name} ({type(layer).__name__}) ({assignment.node_index})"
        rows = [(first, names[0] if names else "", str(assignment.pipeline_stage))]
        return rows + [("", name, "") for name in names[1:]]


class FunctionalExtension(_GraphExtension):
    """Pipeline stages of a functional model's calls."""

    _kind: ClassVar[Any] = FunctionalLayerPipelineStageAssignment


class ModelExtension(_GraphExtension):
    """Pipeline stages of calls in a subclass of Model, known after its build."""

    _kind: ClassVar[Any] = ModelLayerPipelineStageAssignment
