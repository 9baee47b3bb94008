"""The base of all optimizers: TensorFlow 1's ``train.Optimizer``, whose rule is the core's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from ipusim.api import functions, learning
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.gradients import GradientsAndVariables, Pair, Variable, gradients_of, gradients_of_tensor, known
from ipusim.ipu.runtime.host import Tensor
from ipusim.ipu.runtime.loop_body import BodyRecord, body_record
from ipusim.ipu.runtime.own_rule import OwnUpdates, own_rule, updates
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod
from ipusim.ipu.runtime.symbolic_gradients import SymbolicUpdate, applying, computing, pairs_of
from ipusim.ipu.runtime.variable import NamedVariable, waits_for_session

_GATES: Final = (0, 1, 2)


@dataclass(frozen=True, eq=False)
class TrainOp:
    """The operation that minimize returns: it trains when the program that it is part of runs.

    Attributes:
        optimizer: on which minimize was called: its compute_gradients and apply_gradients are to be called.
        loss: what is to become smaller.
        var_list: the variables to train, None for all.
        global_step: a variable that counts updates, or None.
        name: the operation's, or None.
        update: the gradients that a body has called apply_gradients with; None where it has called minimize.
        args, kwargs: what it has called apply_gradients with beside them.
    """

    optimizer: Optimizer
    loss: Any
    var_list: Sequence[Any] | None = None
    global_step: Any = None
    name: str | None = None
    update: SymbolicUpdate | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class Optimizer(OwnUpdates):
    """Base of all optimizers. A subclass may change what compute_gradients and apply_gradients do.

    One of the program's own says how it updates a variable in ``_resource_apply_dense(grad, var)``, with slots of its
    ``_create_slots(var_list)``.
    """

    GATE_NONE: ClassVar[int] = 0
    GATE_OP: ClassVar[int] = 1
    GATE_GRAPH: ClassVar[int] = 2

    #: Classes of this one and above it that change each micro-batch's gradients before they are accumulated.
    _mapping_classes: ClassVar[int] = 0

    def __init_subclass__(cls, *, maps_gradients: bool | None = None, **kwargs: Any) -> None:
        """Note whether a class changes gradients in compute_gradients: where it defines that, unless it says."""
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        cls._mapping_classes += "compute_gradients" in own if maps_gradients is None else maps_gradients
        for name, inside in (("apply_gradients", applying), ("compute_gradients", computing)):
            if name in own:
                setattr(cls, name, inside(own[name]))

    def __init__(
        self, rule: learning.Optimizer | bool | None = None, name: str = "Optimizer", *, use_locking: bool = False
    ) -> None:
        """Apply gradients by ``rule``, or as a subclass says in ``_resource_apply_dense`` of its own.

        In the place of a rule stands TensorFlow's ``use_locking`` then, which has no effect. One that defines
        apply_gradients may leave the update to another optimizer, which is an attribute of it. Raises ProgramTypeError
        for what is no rule, ProgramError for an empty name.
        """
        checks.truth("use_locking", use_locking)
        self._left = False
        says_none = rule is None or isinstance(rule, bool)
        if says_none and updates(self) is not None:
            rule = own_rule(self)
        elif says_none and type(self).apply_gradients is not Optimizer.apply_gradients:
            self._left = True
        elif rule is None or not callable(getattr(rule, "apply", None)) or isinstance(rule, type | bool):
            checks.wrong_type("rule", "an optimizer of ipusim.model, or a subclass's _resource_apply_dense", rule)
        self._rule: Any = rule
        self.name = checks.text("name", name)
        if not name:
            raise ProgramError("Must specify the optimizer name")
        self._updated: dict[str, Variable] = {}

    @property
    def _left_to(self) -> Optimizer:
        """The attribute that the update is left to; raises UnsupportedProgramError unless there is one."""
        wrapped = [value for value in vars(self).values() if isinstance(value, Optimizer)]
        if len(wrapped) != 1:
            raise UnsupportedProgramError(
                f"{type(self).__name__}: expected an optimizer of the program's own to define "
                "_resource_apply_dense(grad, var), or to have one attribute that is the optimizer it leaves the update "
                f"to, got {len(wrapped)}"
            )
        return wrapped[0]

    @property
    def rule(self) -> learning.Optimizer:
        """The core's rule of the weight update."""
        return self._left_to.rule if self._left else self._rule

    @property
    def leaves_update(self) -> bool:
        """Whether it is of the program's own and leaves the update to another, or is around such a one."""
        return self._left

    @property
    def gradient_maps(self) -> int:
        """How many functions change each micro-batch's gradients before they are accumulated."""
        return self._mapping_classes + (self._left_to.gradient_maps if self._left else 0)

    @property
    def cross_replica(self) -> bool:
        """Whether gradients are averaged over replicas."""
        return self._left and self._left_to.cross_replica

    @property
    def accumulation(self) -> Accumulation | None:
        """How gradients are accumulated, if the optimizer says so; in a pipeline the pipeline does."""
        return self._left_to.accumulation if self._left else None

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    @computing
    def compute_gradients(
        self,
        loss: Any,
        var_list: Sequence[Any] | None = None,
        gate_gradients: int = 1,
        aggregation_method: object = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: object = None,
    ) -> list[Pair]:
        """Return pairs of gradient and variable.

        A pipeline calls this for each variable in each micro-batch, with that one's gradient and a place for each
        other's; a subclass may change gradients one by one. Called elsewhere it takes a loss that is a function, at
        the values that the variables which that asks for have now; in a graph those in a session.

        Args:
            loss: a function of nothing; in a pipeline what the pipeline gives.
            var_list: the variables wanted, as such or by name; all by default.
            gate_gradients, aggregation_method, colocate_gradients_with_ops: without effect, as there is no graph.
            grad_loss: must be None.

        Raises ProgramError and ProgramTypeError for arguments out of range or of other types, UnsupportedProgramError
        for a loss that is a tensor, outside of a pipeline.
        """
        if not isinstance(gate_gradients, int) or isinstance(gate_gradients, bool) or gate_gradients not in _GATES:
            raise ProgramError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH.  Not "
                f"{gate_gradients}"
            )
        checks.truth("colocate_gradients_with_ops", colocate_gradients_with_ops)
        if grad_loss is not None:
            checks.wrong_type("grad_loss", "None, as the gradient of a loss by itself is one", grad_loss)
        names = _names_of(var_list)
        pairs: Any = known()
        if pairs is None:
            if callable(loss) and waits_for_session() and not functions.inside():
                loss = loss()
            if isinstance(loss, Tensor):
                return [pair for pair in gradients_of_tensor(loss) if names is None or pair[1].name in names]  # type: ignore[misc]
            if not callable(loss):
                raise UnsupportedProgramError(
                    "compute_gradients: expected to be called by a pipeline, or with a loss that is a function: the "
                    "gradients of a tensor are computed by a program's backward passes, so change them in a "
                    "MapGradientOptimizer, or in compute_gradients or apply_gradients of an optimizer of your own"
                )
            pairs = gradients_of(loss)
        return [pair for pair in pairs if names is None or pair[1].name in names]

    def minimize(
        self,
        loss: Any,
        global_step: object = None,
        var_list: Sequence[Any] | None = None,
        gate_gradients: int = 1,
        aggregation_method: object = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: object = None,
    ) -> Any:
        """Return the operation that trains; with a loss that is a function, train on it once.

        Raises as :meth:`compute_gradients` and :meth:`apply_gradients` do.
        """
        _check_step(global_step)
        record = body_record()
        if record is not None:
            loss = loss() if callable(loss) else loss
        names = _names_of(var_list, record)
        if callable(loss) or isinstance(loss, Tensor):
            pairs = self.compute_gradients(
                loss,
                var_list=var_list,
                gate_gradients=gate_gradients,
                aggregation_method=aggregation_method,
                colocate_gradients_with_ops=colocate_gradients_with_ops,
                grad_loss=grad_loss,
            )
            return self.apply_gradients(pairs, **said(global_step=global_step, name=name))
        if not is_tensor(loss):
            checks.wrong_type("loss", "a tensor, or a function", loss)
        operation = TrainOp(self, loss, None if names is None else sorted(names), global_step, name)
        if record is not None and record.at_once:
            record.depend([operation])
        return operation

    def _train_op(
        self, record: BodyRecord, update: SymbolicUpdate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TrainOp:
        """Return the operation that trains as the body of a loop says with apply_gradients."""
        every = {name for name, _ in record.variables.values()}
        names = None if every <= set(update.gradients) else sorted(update.gradients)
        operation = TrainOp(self, update.loss, names, update=update, args=args, kwargs=kwargs)
        if record.at_once:
            record.depend([operation])
        return operation

    @applying
    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> Any:
        """Update the variables; called once for each execution of the pipeline and replica, with all variables.

        A variable without a gradient (None) stays as it is; ``global_step``, a Variable, is one more afterwards.
        What a subclass computes here, over all stages, takes no simulated time beyond its rule's. Raises
        ProgramTypeError for a gradient of another type than its variable: as in Graphcore's, no optimizer casts it;
        ProgramError and ProgramTypeError in TensorFlow's words for what are no pairs, or no gradients.
        """
        _check_step(global_step)
        pairs = checked_pairs(grads_and_vars)
        for state in {id(variable.state): variable.state for _, variable in pairs}.values():
            here = [(gradient, variable) for gradient, variable in pairs if variable.state is state]
            arrays = {variable.name: variable.array for _, variable in here}
            if not state:
                state.update(self.rule.initial_state(arrays))
            self.rule.apply(arrays, {variable.name: gradient for gradient, variable in here}, state)
        self._updated.update({variable.name: variable for _, variable in pairs})
        if isinstance(global_step, Variable | NamedVariable):
            global_step.assign_add(1)

    def get_slot(self, var: Any, name: str) -> Variable | None:
        """Return a slot of a variable, as a variable; None where there is none. Raises ProgramTypeError.

        Of a variable of the host it is that of the last update.
        """
        if isinstance(var, NamedVariable):
            var = self._updated.get(var.name, Variable(var.name, var.initial, {}))
        checks.instance("var", var, Variable, "a Variable, as apply_gradients gets it")
        slot = f"{var.name}/{checks.text('name', name)}"
        key = var.name if isinstance(self.rule, learning.Momentum) else slot
        if name not in slot_names(self.rule) or key not in var.state:
            return None
        return Variable(slot, var.state[key], var.state)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots, in alphabetical order."""
        return slot_names(self.rule)

    def variables(self) -> list[Variable]:
        """Return the slots of all variables that have been updated, in the order of these."""
        result = (
            self.get_slot(variable, name) for variable in self._updated.values() for name in self.get_slot_names()
        )
        return [slot for slot in result if slot is not None]


def said(**arguments: Any) -> dict[str, Any]:
    """Return the arguments of apply_gradients that are not None, by name: Keras' has another order, and fewer."""
    return {name: value for name, value in arguments.items() if value is not None}


def checked_pairs(grads_and_vars: Any) -> list[Pair]:
    """Return the pairs that have a gradient; raises ProgramError and ProgramTypeError in TensorFlow's words."""
    pairs = pairs_of(grads_and_vars, "pairs of a gradient and a Variable")
    for gradient, variable in pairs:
        if not isinstance(variable, Variable):
            checks.wrong_type("grads_and_vars", "pairs of a gradient and a Variable", (gradient, variable))
        if gradient is None:
            continue
        if not is_tensor(gradient):
            raise ProgramTypeError(f"Gradient must be a Tensor, IndexedSlices, or None: {gradient}")
        if np.shape(gradient) != variable.shape:
            checks.wrong_value(
                "grads_and_vars", f"a gradient of shape {variable.shape} for {variable.name!r}", np.shape(gradient)
            )
        value = np.asarray(gradient).dtype
        if value != variable.dtype:
            raise ProgramTypeError(
                f"the gradient of {variable.name!r} is {value} and the variable {variable.dtype}: expected "
                "gradients of the variable's type, to which an optimizer of your own casts what was accumulated "
                "in another gradient_accumulation_dtype, as in `gradient.astype(variable.dtype)`"
            )
    result = [pair for pair in pairs if pair[0] is not None]
    if not result:
        names = [variable.name for _, variable in pairs]
        raise ProgramError(f"No gradients provided for any variable: {names}.")
    return result


def _names_of(var_list: Any, record: BodyRecord | None = None) -> set[str] | None:
    """Return the names of the variables of a list, each a Variable or a name; None for all.

    In a body, whose ``record`` it is, also of what stands for them there. Raises ProgramTypeError.
    """
    if var_list is None:
        return None
    if record is not None and isinstance(var_list, list | tuple):
        var_list = [item if isinstance(item, str) else record.name_of(item) or item for item in var_list]
    kinds = Variable | NamedVariable | str
    if not isinstance(var_list, list | tuple) or not all(isinstance(item, kinds) for item in var_list):
        checks.wrong_type("var_list", "a list of variables, as such or by name", var_list)
    return {item if isinstance(item, str) else item.name for item in var_list}


def is_tensor(value: object) -> bool:
    """Tell whether a value is an array of numbers, or what a traced stage computes with in its place."""
    from autograd.tracer import isbox  # noqa: PLC0415 - autograd takes a while to import

    return isbox(value) or (isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf")


def _check_step(global_step: object) -> None:
    kinds = Variable | NamedVariable | None
    checks.instance("global_step", global_step, kinds, "a Variable that counts updates, or None")


#: The names of a rule's slots; that of a rule which keeps one array stands for the variable's own name in the state.
_NAMES: Final = {
    learning.SGD: (),
    learning.Momentum: ("momentum",),
    learning.Adam: ("m", "v"),
    learning.LAMB: ("m", "v"),
}


def slot_names(rule: learning.Optimizer) -> list[str]:
    """Return the names of a rule's slots in alphabetical order; none of a rule that says none."""
    names: tuple[str, ...] = _NAMES.get(type(rule), getattr(rule, "slots", ()))
    return sorted(names)


@dataclass(frozen=True)
class Accumulation:
    """How the gradients of mini-batches become one.

    Attributes:
        num_mini_batches: mini-batches of a weight update.
        offload_weight_update_variables, replicated_optimizer_state_sharding: as in a pipeline.
        dtype: of the accumulators, or a function from a variable to it; None for the variable's own.
        reduction_method: how gradients are accumulated.
    """

    num_mini_batches: int
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: bool | None = False
    dtype: Any = None
    reduction_method: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
