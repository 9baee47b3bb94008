"""When activations are computed again, and which of them are kept, where a request leaves it to the framework.

PopART, which PopTorch compiles to, runs an operation of the forward pass again inside of the backward pass, just before
the first gradient that needs it, and no further back than to a checkpoint (graphcore/popart d2f20d7,
willow/src/popx/irlowering.cpp, FindRequiredRecomputes). A stage's input and its checkpoints are kept for each
micro-batch (willow/src/transforms/pipeline.cpp, getStashCandidateTensors). Graphcore's programs make a checkpoint of
what each layer puts out but the last one, so that the activations of one layer are alive at a time: graphcore/examples
2d8b565^, nlp/bert/popart/bert_model.py, recompute_checkpoint_every_layer, and 3cc8f81, nlp/bert/pytorch/modeling.py.
So do vision/vit/pytorch, the scripts of nlp/gpt2/pytorch, and multimodal/CLIP, there of the last layer too. A program
that does not, as speech/conformer/pytorch, says ``recomputation_checkpoints: []``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ipusim.hardware.system import ON_POPART
from ipusim.model.layers.add import Add
from ipusim.pipeline.rules import INTERLEAVED
from ipusim.runs.assemble.model_layers import RequestedLayer
from ipusim.runs.request.layer_spec import BuiltSpec
from ipusim.runs.request.schema import Options


def asked_mode(options: Options, modes: Iterable[str]) -> str:
    """Return the mode of recomputation that is asked for: the framework's in place of Auto.

    Args:
        options: of the request.
        modes: of the schedule.
    """
    mode = options.pipeline.recomputation_mode
    return INTERLEAVED if mode == "Auto" and _is_on_popart(options) and INTERLEAVED in modes else mode


def kept_layers(options: Options, layers: Iterable[RequestedLayer]) -> tuple[str, ...]:
    """Return the layers whose outputs are kept for a recomputation inside of the backward pass.

    Args:
        options: of the request.
        layers: of all stages.

    Returns:
        The names that are asked for. By default those of layers that another repetition follows, where the framework's
        programs keep them and no skip connection leaves a layer; else none.
    """
    if options.pipeline.recomputation_checkpoints is not None:
        return options.pipeline.recomputation_checkpoints
    layers = tuple(layers)
    if not _is_on_popart(options) or any(is_add(layer) for layer in layers):
        return ()
    return tuple(layer.spec.name for layer in layers if layer.repetition_follows)


def may_keep_layers(options: Options) -> bool:
    """Tell whether outputs of layers may be kept for a recomputation, whatever the layers are."""
    named = options.pipeline.recomputation_checkpoints
    return _is_on_popart(options) if named is None else bool(named)


def is_add(layer: RequestedLayer) -> bool:
    """Tell whether a layer adds what an earlier one made."""
    return isinstance(layer.spec, BuiltSpec) and layer.spec.row.makes is Add


def _is_on_popart(options: Options) -> bool:
    return options.system.host.framework in ON_POPART
