"""What a program keeps in Streaming Memory instead of its IPUs' own: Graphcore's offload options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ipusim.errors import RemoteMemoryError, UnsupportedProgramError
from ipusim.model.profile import StageProfile

#: Least bytes of a tensor that is offloaded by itself (IPUConfig's optimizations.minimum_remote_tensor_size).
MINIMUM_REMOTE_TENSOR_SIZE: Final = 128


@dataclass(frozen=True)
class Offload:
    """Which variables lie in Streaming Memory.

    Attributes:
        weight_update_variables: the optimizer's state: loaded at the start of each weight update and
            stored at its end.
        gradient_accumulation_buffers: the gradient accumulators: loaded before each backward pass and
            stored after it, and loaded for the weight update.
        activations: what is kept between stages and for backward passes, under batch serialization:
            stored after each pass that makes it, and loaded before each that uses it.
        minimum_bytes: smaller tensors of the optimizer's state stay with the IPU.
    """

    weight_update_variables: bool = False
    gradient_accumulation_buffers: bool = False
    minimum_bytes: int = MINIMUM_REMOTE_TENSOR_SIZE
    activations: bool = False

    def state_bytes(self, profile: StageProfile) -> int:
        """Return the bytes of a stage's optimizer state that lie in Streaming Memory."""
        if not self.weight_update_variables:
            return 0
        tensors = profile.state_tensors or (profile.state_bytes,)
        return sum(size for size in tensors if size >= self.minimum_bytes)

    def accumulator_bytes(self, profile: StageProfile) -> int:
        """Return the bytes of a stage's gradient accumulators that lie in Streaming Memory."""
        return profile.accumulator_bytes if self.gradient_accumulation_buffers else 0

    def remote_bytes(self, profiles: Iterable[StageProfile]) -> int:
        """Return the bytes of these stages that lie in Streaming Memory."""
        return sum(self.state_bytes(profile) + self.accumulator_bytes(profile) for profile in profiles)


def resolve_offload(
    weight_update_variables: bool | None,
    gradient_accumulation_buffers: bool | None,
    activations: bool | None = None,
    *,
    remote_memory: bool,
    serialized: bool = False,
    minimum_bytes: int = MINIMUM_REMOTE_TENSOR_SIZE,
) -> Offload:
    """Return what is offloaded, from Graphcore's arguments.

    None leaves it to the compiler: the optimizer's state is offloaded where there is remote
    memory; accumulators and activations where there is and batches are ``serialized``. Raises
    RemoteMemoryError for True without remote memory, UnsupportedProgramError for activations
    without batch serialization.
    """
    if activations and not serialized:
        raise UnsupportedProgramError(
            "Activation offloading is only supported with the `Sequential` schedule and when "
            "`batch_serialization_iterations > 1`."
        )
    if activations and not remote_memory:
        raise RemoteMemoryError(
            "Activations offloading has been enabled, however the current configuration of the IPU devices does not "
            "support remote memory. Set the `offload_activations` argument of `pipelining_ops.pipeline` to `False` to "
            "stop seeing this message."
        )
    if weight_update_variables and not remote_memory:
        raise RemoteMemoryError(
            "Current configuration of the IPU devices does not support remote memory and therefore weight update only "
            "variables cannot be offloaded to remote memory.Consider configuring the IPU system with "
            "'IPUConfig.device_connection.enable_remote_buffers' set to True if remote memory is supported."
        )
    if gradient_accumulation_buffers and not remote_memory:
        raise RemoteMemoryError(
            "Gradient accumulation buffer offloading has been enabled, however the current configuration of the IPU "
            "devices does not support remote memory. Set the `offload_gradient_accumulation_buffers` argument of "
            "`pipelining_ops.pipeline` to `False` to stop seeing this message."
        )
    state = remote_memory if weight_update_variables is None else weight_update_variables
    by_default = remote_memory and serialized
    sums, kept = (by_default if asked is None else asked for asked in (gradient_accumulation_buffers, activations))
    return Offload(state, sums, minimum_bytes, kept)


def no_effect_in_inference(weight_update_variables: bool | None) -> tuple[str, ...]:
    """Return Graphcore's warnings about options that an inference pipeline does not have."""
    if not weight_update_variables:
        return ()
    return ("offload_weight_update_variables will have no effect since this pipeline is in inference.",)
