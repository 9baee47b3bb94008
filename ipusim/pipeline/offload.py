"""Resolve which tensors live outside of IPUs: Graphcore's offload options, moved activations, host variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ipusim.base.errors import ProgramError, RemoteMemoryError, UnsupportedProgramError
from ipusim.model.profile import StageProfile

#: Minimum bytes of a separately offloaded tensor (IPUConfig's optimizations.minimum_remote_tensor_size).
MINIMUM_REMOTE_TENSOR_SIZE: Final = 128
#: Minimum elements of a variable whose optimizer state PopART shards (minElementsForReplicatedTensorSharding).
MINIMUM_SHARDED_ELEMENTS: Final = 8192
#: Destinations of moved activations.
Destination = Literal["streaming_memory", "partner"]


@dataclass(frozen=True)
class MovedActivations:
    """Activations moved off their IPU by a program.

    Attributes:
        to: Streaming Memory, or the partner IPU at equal distance from the other end of the pipeline (BPipe,
            arXiv 2401.02088).
        stages: numbers of stages with moved activations; None for all stages.
        keep: maximum number of a stage's micro-batches that stay. None means 1 for Streaming Memory; for a partner it
            means the number that leaves at most ceil((p + 2) / 2) micro-batches on any of p IPUs in 1F1B.
        buffers: maximum number of a stage's micro-batches in transit or in use, in addition to ``keep``.
    """

    to: Destination = "streaming_memory"
    stages: tuple[int, ...] | None = None
    keep: int | None = None
    buffers: int = 1

    def most_kept(self, mapping: tuple[int, ...]) -> int:
        """Return the maximum number of a stage's micro-batches that stay."""
        if self.keep is not None:
            return self.keep
        ipus = len(set(mapping))
        return 1 if self.to == "streaming_memory" else max(0, (ipus + 3) // 2 - self.buffers)

    def receiving_ipu(self, ipu: int, mapping: tuple[int, ...]) -> int:
        """Return the IPU that receives an IPU's activations; for Streaming Memory the sending IPU."""
        if self.to == "streaming_memory":
            return ipu
        ipus = sorted(set(mapping))
        return ipus[len(ipus) - 1 - ipus.index(ipu)]


class UpdatedVariable(NamedTuple):
    """A variable in the weight update of a stage.

    Attributes:
        gradient: elements of the gradient accumulator, and bytes of an element.
        weight: elements of the variable, and bytes of an element.
        sharded: whether each replica updates a part of the variable alone.
    """

    gradient: tuple[int, int]
    weight: tuple[int, int]
    sharded: bool


@dataclass(frozen=True)
class Offload:
    """Location of variables: on IPUs, in Streaming Memory or on the host.

    A shard is a replica's part of a variable.

    Attributes:
        weight_update_variables: whether optimizer state is offloaded: loaded at the start of each weight update and
            stored at its end.
        gradient_accumulation_buffers: whether gradient accumulators are offloaded: loaded before each backward pass,
            stored after it, and loaded for the weight update.
        activations: whether activations between stages and for backward passes are offloaded, under batch
            serialization: stored after each producing pass, and loaded before each consuming pass.
        minimum_bytes: smaller tensors of optimizer state stay on the IPU.
        replicas: number of replicas that share sharded variables; 1 without replication.
        sharded_state: whether each replica stores only a shard of each tensor of optimizer state; an all-gather
            joins shards for each weight update (replicated_optimizer_state_sharding).
        minimum_elements: minimum elements of a variable with a sharded update.
        on_popart: whether PopART compiles the program; PopART shards the updates of variables, too.
        weights: whether each replica stores only a shard of weights, in Streaming Memory; an
            all-gather joins shards for each pass (replicated_weight_sharding with offload_weights).
        variables_on_host: whether the host stores optimizer state and updates weights in its own memory:
            gradients are sent to the host after the last pass, and weights return for the next.
        moved: activations moved out after forward passes and back before the passes that use them; None without
            moves.
    """

    weight_update_variables: bool = False
    gradient_accumulation_buffers: bool = False
    minimum_bytes: int = MINIMUM_REMOTE_TENSOR_SIZE
    activations: bool = False
    replicas: int = 1
    sharded_state: bool = False
    minimum_elements: int = MINIMUM_SHARDED_ELEMENTS
    on_popart: bool = False
    weights: bool = False
    variables_on_host: bool = False
    moved: MovedActivations | None = None

    @property
    def sharded_update(self) -> bool:
        """Whether each replica updates a part of each variable, as in PopART.

        A reduce-scatter of the gradients comes before the update, an all-gather of the weights after it.
        """
        return self.on_popart and self.sharded_state and not self.weights

    @property
    def _sharers(self) -> int:
        """Number of replicas that share a stored tensor of state, and gather it for each weight update."""
        return self.replicas if self.sharded_state and not self.sharded_update else 1

    @property
    def least_bytes(self) -> int:
        """Minimum bytes of an offloaded tensor of optimizer state; a sharded tensor counts with all its shards."""
        return self.minimum_bytes * self._sharers

    def is_sharded(self, profile: StageProfile, elements: int) -> bool:
        """Tell whether the update of a variable of ``elements`` is sharded.

        The minimum number of elements does not apply to a stage known by its cost.
        """
        has_few_elements = bool(profile.state_tensors) and elements < self.minimum_elements
        return self.sharded_update and profile.state_bytes > 0 and not has_few_elements

    def variables_of(self, profile: StageProfile) -> Iterator[UpdatedVariable]:
        """Yield the variables of a stage's weight update; a stage known by its cost counts as one variable."""
        tensors = profile.accumulator_tensors
        if not tensors and profile.accumulator_bytes:
            size = profile.accumulator_itemsize
            count = -(-profile.accumulator_bytes // size)
            yield UpdatedVariable((count, size), (profile.parameter_bytes, 1), self.is_sharded(profile, count))
        itemsize = profile.parameter_bytes // max(1, sum(elements for elements, _ in tensors))
        for elements, size in tensors:
            yield UpdatedVariable((elements, size), (elements, itemsize), self.is_sharded(profile, elements))

    def _state_tensors(self, profile: StageProfile) -> Iterator[tuple[int, int]]:
        """Yield the bytes of each state tensor of a stage, and the bytes that one replica updates."""
        if not self.sharded_update:
            tensors = profile.state_tensors or (profile.state_bytes,)
            yield from zip(tensors, tensors, strict=True)
            return
        if not profile.state_tensors:
            yield profile.state_bytes, -(-profile.state_bytes // self.replicas)
            return
        variables = list(self.variables_of(profile))
        slots = len(profile.state_tensors) // len(variables)
        owners = (variable for variable in variables for _ in range(slots))
        for size, ((elements, _), _, sharded) in zip(profile.state_tensors, owners, strict=True):
            yield size, size // elements * -(-elements // self.replicas) if sharded else size

    def resident_state_bytes(self, profile: StageProfile) -> int:
        """Return the bytes of a stage's optimizer state that stay on its IPU."""
        if self.variables_on_host:
            return 0
        return sum(part for _, part in self._state_tensors(profile)) - self.state_bytes(profile)

    def state_bytes(self, profile: StageProfile) -> int:
        """Return the bytes of a stage's optimizer state loaded for the weight update."""
        if not self.weight_update_variables:
            return 0
        return sum(part for size, part in self._state_tensors(profile) if size >= self.least_bytes)

    def loaded_state_bytes(self, profile: StageProfile) -> int:
        """Return the bytes of a stage's optimizer state that are on the IPU at a time: the state of one variable.

        PopART combines no loads (popart d2f20d7, streamingmemoryopinserter.cpp), and its scheduler keeps little alive.
        TensorFlow's compiler lets each load wait for the store of the state before it, to keep little alive
        (graphcore/tensorflow d9e38abd, remote_parameter_parallel_combiner.cc). All state of a stage known by its cost
        counts, as its variables are not known.
        """
        state, variables = self.state_bytes(profile), len(profile.accumulator_tensors)
        if not variables:
            return state
        parts = [part for _, part in self._state_tensors(profile)]
        slots = len(parts) // variables
        return min(state, max(sum(parts[start : start + slots]) for start in range(0, len(parts), max(1, slots))))

    def stored_state_bytes(self, profile: StageProfile) -> int:
        """Return a replica's stored bytes of a stage's optimizer state, in Streaming Memory."""
        return -(-self.state_bytes(profile) // self._sharers)

    def offchip_weight_bytes(self, profiles: Iterable[StageProfile]) -> int:
        """Return the bytes of weights of stages with offloaded optimizer state."""
        return sum(profile.parameter_bytes for profile in profiles if self.state_bytes(profile))

    def weight_bytes(self, profile: StageProfile) -> int:
        """Return the bytes of a stage's weights stored off its IPU."""
        return profile.parameter_bytes if self.weights else 0

    def stored_weight_bytes(self, profile: StageProfile) -> int:
        """Return a replica's stored bytes of a stage's weights, in Streaming Memory."""
        return -(-self.weight_bytes(profile) // self.replicas)

    def gathered_bytes(self, profile: StageProfile) -> int:
        """Return the bytes that replicas gather before a stage's weight update, or after a sharded weight update."""
        if self.sharded_update:
            variables = (variable for variable in self.variables_of(profile) if variable.sharded)
            return sum(elements * itemsize for _, (elements, itemsize), _ in variables)
        return self.weight_bytes(profile) + (self.state_bytes(profile) if self.sharded_state else 0)

    def accumulator_bytes(self, profile: StageProfile) -> int:
        """Return the bytes of a stage's gradient accumulators in Streaming Memory."""
        return profile.accumulator_bytes if self.gradient_accumulation_buffers else 0

    def remote_bytes(self, profiles: Iterable[StageProfile]) -> int:
        """Return the bytes of stages in Streaming Memory."""
        return sum(
            self.stored_state_bytes(profile) + self.stored_weight_bytes(profile) + self.accumulator_bytes(profile)
            for profile in profiles
        )


#: Graphcore's text on offloaded activations without remote memory.
_NO_REMOTE_MEMORY: Final = (
    "Activations offloading has been enabled, however the current configuration of the IPU devices does not support "
    "remote memory. Set the `offload_activations` argument of `pipelining_ops.pipeline` to `False` to stop seeing this "
    "message."
)


def check_activations(offloaded: bool | None, *, remote_memory: bool, serialized: bool) -> None:
    """Refuse offloaded activations without batch serialization, or without remote memory.

    Raises UnsupportedProgramError and RemoteMemoryError.
    """
    if offloaded and not serialized:
        raise UnsupportedProgramError(
            "Activation offloading is only supported with the `Sequential` schedule and when "
            "`batch_serialization_iterations > 1`."
        )
    if offloaded and not remote_memory:
        raise RemoteMemoryError(_NO_REMOTE_MEMORY)


def check_moved(room: bool, *, serialized: bool) -> None:
    """Refuse moves of activations under batch serialization, or if there is no ``room`` for them elsewhere.

    Raises UnsupportedProgramError and RemoteMemoryError.
    """
    if serialized:
        raise UnsupportedProgramError(
            "Single activations are moved only with batch_serialization_iterations 1: expected true or false with "
            "batch serialization, which offloads all activations or none."
        )
    if not room:
        raise RemoteMemoryError(_NO_REMOTE_MEMORY)


def check_weight_update_variables(offloaded: bool | None, *, remote_memory: bool) -> None:
    """Refuse offloaded optimizer state without remote memory; raises RemoteMemoryError."""
    if offloaded and not remote_memory:
        raise RemoteMemoryError(
            "Current configuration of the IPU devices does not support remote memory and therefore weight update only "
            "variables cannot be offloaded to remote memory.Consider configuring the IPU system with "
            "'IPUConfig.device_connection.enable_remote_buffers' set to True if remote memory is supported."
        )


def check_accumulation_buffers(offloaded: bool | None, *, remote_memory: bool) -> None:
    """Refuse offloaded gradient accumulators without remote memory; raises RemoteMemoryError."""
    if offloaded and not remote_memory:
        raise RemoteMemoryError(
            "Gradient accumulation buffer offloading has been enabled, however the current configuration of the IPU "
            "devices does not support remote memory. Set the `offload_gradient_accumulation_buffers` argument of "
            "`pipelining_ops.pipeline` to `False` to stop seeing this message."
        )


def resolve_offload(
    weight_update_variables: bool | None,
    gradient_accumulation_buffers: bool | None,
    activations: bool | None = None,
    *,
    remote_memory: bool,
    serialized: bool = False,
    minimum_bytes: int = MINIMUM_REMOTE_TENSOR_SIZE,
    popart: bool = False,
) -> Offload:
    """Resolve Graphcore's offload arguments, which the checks above have accepted.

    None leaves the choice to the compiler. TensorFlow's compiler offloads optimizer state if remote memory exists;
    PopART keeps optimizer state on the IPUs (TensorLocation's OnChip). Both offload accumulators and activations if
    remote memory exists and batches are ``serialized``.
    """
    by_compiler = remote_memory and not popart
    has_remote_state = by_compiler if weight_update_variables is None else weight_update_variables
    by_default = remote_memory and serialized
    has_remote_accumulators, has_remote_activations = (
        by_default if argument is None else argument for argument in (gradient_accumulation_buffers, activations)
    )
    return Offload(has_remote_state, has_remote_accumulators, minimum_bytes, has_remote_activations, on_popart=popart)


def check_weight_sharding(
    sharded: bool | None, offload_weights: bool | None, *, remote_memory: bool, stage: str
) -> None:
    """Refuse weights of ``stage`` sharded over replicas without offloading. Raises UnsupportedProgramError."""
    if sharded and (offload_weights is False or not remote_memory):
        raise UnsupportedProgramError(
            f"Requested replicated weight sharding for {stage} without offloading. This is currently not supported."
        )


def resolve_sharding(
    offload: Offload,
    optimizer_state_sharding: bool,
    weight_sharding: bool | None,
    offload_weights: bool | None,
    *,
    replicas: int,
    remote_memory: bool,
    serialized: bool,
) -> Offload:
    """Add sharding over replicas to ``offload``, from Graphcore's arguments.

    :func:`check_weight_sharding` has accepted the arguments. None shards weights if batches are ``serialized`` and
    remote memory exists. A single replica stores all tensors. Only PopART shards state that is not offloaded, and
    only beside whole weights. Raises ProgramError for other sharded state without offloading.
    """
    by_default = serialized and remote_memory and offload_weights is not False
    weights = by_default if weight_sharding is None else weight_sharding
    if optimizer_state_sharding and not offload.weight_update_variables and (weights or not offload.on_popart):
        addition = " beside replicated_weight_sharding" if offload.on_popart else ""
        raise ProgramError(
            f"To use replicated_optimizer_state_sharding{addition}, optimizer state must be offloaded by using "
            "offload_weight_update_variables."
        )
    has_several_replicas = replicas > 1
    return replace(
        offload,
        replicas=replicas,
        sharded_state=optimizer_state_sharding and has_several_replicas,
        weights=weights and has_several_replicas,
    )


def no_effect_in_inference(**options: bool | None) -> tuple[str, ...]:
    """Return warnings, with Graphcore's texts, about set ``options`` without effect in inference."""
    return tuple(
        f"{name} will have no effect since this pipeline is in inference." for name, value in options.items() if value
    )


def no_effect_without_replicas(
    offload: Offload, optimizer_state_sharding: bool, weight_sharding: bool | None, offload_weights: bool | None
) -> tuple[str, ...]:
    """Return warnings about sharding without several replicas, and about offloaded weights without sharding."""
    options = {
        "replicated_optimizer_state_sharding": optimizer_state_sharding,
        "replicated_weight_sharding": bool(weight_sharding),
    }
    notes = [
        f"{name} will have no effect since there is one replica."
        for name, value in options.items()
        if value and offload.replicas == 1
    ]
    if offload_weights and not offload.weights:
        notes.append("offload_weights will have no effect since no weights are spread over replicas.")
    return tuple(notes)
