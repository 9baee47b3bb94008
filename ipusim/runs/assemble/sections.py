"""Check sections of a request that exclude or require each other."""

from __future__ import annotations

from ipusim.base.near_names import did_you_mean, list_names
from ipusim.pipeline.rules import (
    check_buffer_depth,
    check_outfeed,
    check_outfeed_mask,
    check_prefetch_depth,
    check_serialization,
    check_weight_updates,
)
from ipusim.runs.assemble.network import is_loss
from ipusim.runs.assemble.options import check_options
from ipusim.runs.assemble.recomputation import is_add
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.schema import Options


def check_sections(
    options: Options, requests: tuple[RequestedStage, ...] | None, training: bool, findings: Findings
) -> None:
    """Record sections that exclude or require each other; ``requests`` lists stages defined by options."""
    if options.evaluate is not None and (options.data is None or options.data.hold_out is None):
        text = "expected held-out samples to evaluate on, got none: add hold_out to data, such as hold_out: 0.2"
        findings.add(("evaluate",), text)
    text = "expected no bytes with use_synthetic_data, because the feeds then move no bytes; leave one of the two out"
    for queue in ("infeed", "outfeed"):
        if options.use_synthetic_data and findings.is_set((queue, "element_bytes")):
            findings.add((queue, "element_bytes"), text)
    with findings.collect(("pipeline", "continuous_weight_updates")):
        check_weight_updates(options.pipeline.continuous_weight_updates)
    with findings.collect(("pipeline", "batch_serialization_iterations")):
        check_serialization(options.pipeline.batch_serialization_iterations, options.pipeline.reduction_method)
    findings.attempt(("infeed", "prefetch_depth"), check_prefetch_depth, options.infeed.prefetch_depth)
    findings.attempt(("outfeed", "buffer_depth"), check_buffer_depth, options.outfeed.buffer_depth)
    if requests is None:
        return
    _check_outfeed(options, requests, training, findings)
    has_operations = not requests[0].costs and options.pipeline.cycles is None
    check_options(options, len(requests), has_operations, findings)
    _check_checkpoints(options, requests, has_operations, findings)
    if requests[0].costs:
        if options.numerics == "on":
            text = "expected off with stages with only costs, got on: give layers and data to compute"
            findings.add(("numerics",), text)
        if options.data is not None:
            text = "expected no data with stages with only costs, got data: infeed.element_bytes sets the bytes"
            findings.add(("data",), text)
        return
    if options.data is None:
        text = "expected data with samples as the model's input, got none: add for example "
        findings.add(("data",), text + "data: {type: synthetic, shape: [28, 28], classes: 10, samples: 1000}")
    last = requests[-1].layers[-1]
    if training and options.optimizer is None:
        findings.add(("training",), "expected an optimizer to train with, got none: add one, or set training to false")
    if training and not is_loss(last):
        text = f"expected a loss as the last layer to train, got {last.spec.name!r}: add one, or leave optimizer out"
        findings.add(last.path, text)
    if options.evaluate is not None and not training and not is_loss(last):
        text = f"expected a loss as the model's last layer to evaluate, got {last.spec.name!r}"
        findings.add(("evaluate",), text)


def _check_outfeed(options: Options, requests: tuple[RequestedStage, ...], training: bool, findings: Findings) -> None:
    """Record results that the outfeed cannot send, at the first responsible key."""
    pipeline = options.pipeline
    keys = "outfeed_mask", "outfeed_loss", "accumulate_outfeed"
    key = next((key for key in keys if getattr(pipeline, key)), keys[0])
    with findings.collect(("pipeline", key)):
        check_outfeed(
            training=training,
            mask=pipeline.outfeed_mask is not None,
            loss=pipeline.outfeed_loss,
            accumulate=pipeline.accumulate_outfeed,
            mode=options.outfeed.mode,
        )
        if pipeline.outfeed_mask is not None:
            check_outfeed_mask(pipeline.outfeed_mask, 1 if requests[0].costs else 2)
    if pipeline.accumulate_outfeed_dtype is not None and not pipeline.accumulate_outfeed:
        text = "expected accumulate_outfeed: true with the type of the sum, got only the type"
        findings.add(("pipeline", "accumulate_outfeed_dtype"), text)


def _check_checkpoints(
    options: Options, requests: tuple[RequestedStage, ...], has_operations: bool, findings: Findings
) -> None:
    """Record checkpoints that are not layers, or that are in stages with given cycles."""
    key: KeyPath = ("pipeline", "recomputation_checkpoints")
    checkpoints = options.pipeline.recomputation_checkpoints or ()
    if checkpoints and not has_operations:
        findings.add(key, "expected no checkpoints in stages with given cycles, got checkpoints: leave them out")
        return
    layers = [layer for stage in requests for layer in stage.layers]
    if checkpoints and any(map(is_add, layers)):
        findings.add(key, "expected no checkpoints in a model with skip connections, got checkpoints: leave them out")
    names = [layer.spec.name for layer in layers if not is_loss(layer)]
    for index, name in enumerate(checkpoints):
        if name not in names:
            hint = did_you_mean(name, names)
            text = f"expected the name of a layer, got {name!r}{hint} (the layers are {list_names(names, name)})"
            findings.add((*key, index), text)
