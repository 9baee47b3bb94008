"""Choose the framework's default recomputation: when activations are computed again, and which activations are kept.

A checkpoint is an output that is kept, so that later operations can be recomputed from it. PopART, the compiler behind
PopTorch, repeats a forward operation inside the backward pass, just before the first gradient that needs its output.
PopART goes back to the last checkpoint at most (graphcore/popart d2f20d7, willow/src/popx/irlowering.cpp,
FindRequiredRecomputes). A stage keeps its input and its checkpoints for each micro-batch
(willow/src/transforms/pipeline.cpp, getStashCandidateTensors). Graphcore's programs make the output of each layer but
the last a checkpoint, so that the activations of only one layer are alive at a time: graphcore/examples 2d8b565^,
nlp/bert/popart/bert_model.py, recompute_checkpoint_every_layer, and 3cc8f81, nlp/bert/pytorch/modeling.py. The same
holds for vision/vit/pytorch, the scripts of nlp/gpt2/pytorch, and multimodal/CLIP, whose last layer is a checkpoint
too. Programs without checkpoints, such as speech/conformer/pytorch, say ``recomputation_checkpoints: []``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ipusim.hardware.system import ON_POPART
from ipusim.model.layers.add import Add
from ipusim.pipeline.rules import INTERLEAVED, recomputation
from ipusim.runs.assemble.model_layers import RequestedLayer
from ipusim.runs.request.layer_spec import BuiltSpec
from ipusim.runs.request.schema import Options
from ipusim.schedules.schedule import Schedule


def asked_mode(options: Options, modes: Iterable[str]) -> str:
    """Return the requested mode of recomputation, with PopART's interleaved mode in place of Auto.

    Args:
        options: options of the request.
        modes: modes that the schedule supports.
    """
    mode = options.pipeline.recomputation_mode
    return INTERLEAVED if mode == "Auto" and _is_on_popart(options) and INTERLEAVED in modes else mode


def mode_to_state(options: Options, schedule: Schedule, mode: str) -> str | None:
    """Return the value of ``recomputation_mode`` for a plan that recomputes in ``mode``; None if Auto takes this mode.

    A stated mode is refused by schedules without it, for example in a later comparison of schedules.

    Args:
        options: options that the plan changes; a mode stated there is replaced.
        schedule: schedule of the plan.
        mode: mode of the plan.
    """
    modes, is_auto = schedule.recomputation_modes, options.pipeline.recomputation_mode == "Auto"
    return None if is_auto and mode == recomputation(asked_mode(options, modes), modes, schedule.name) else mode


def kept_layers(options: Options, layers: Iterable[RequestedLayer]) -> tuple[str, ...]:
    """Return the names of layers whose outputs are checkpoints for recomputation inside the backward pass.

    Args:
        options: options of the request.
        layers: layers of all stages.

    Returns:
        Requested names. By default under PopART, in models without skip connections: the last layer of each repetition
        but the last. Otherwise empty.
    """
    if options.pipeline.recomputation_checkpoints is not None:
        return options.pipeline.recomputation_checkpoints
    layers = tuple(layers)
    if not _is_on_popart(options) or any(is_add(layer) for layer in layers):
        return ()
    return tuple(layer.spec.name for layer in layers if layer.repetition_follows)


def is_add(layer: RequestedLayer) -> bool:
    """Return whether a layer adds the output of an earlier layer."""
    return isinstance(layer.spec, BuiltSpec) and layer.spec.row.kind_class is Add


def _is_on_popart(options: Options) -> bool:
    return options.system.host.framework in ON_POPART
