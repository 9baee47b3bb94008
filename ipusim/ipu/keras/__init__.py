"""Keras on IPUs, in Graphcore's names: stages of pipelines, options of models, and layers."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import offering

_HERE: Final = "ipusim.ipu.keras"
_ASSIGNMENTS: Final = (
    "FunctionalLayerPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "SequentialLayerPipelineStageAssignment",
)

__getattr__, __dir__ = offering(
    "keras.ipu",
    {
        "extensions": f"{_HERE}.extensions",
        "layers": f"{_HERE}.layers",
        "Model": f"{_HERE}.models:Model",
        "PipelineStage": f"{_HERE}.pipeline_stage:PipelineStage",
        "Sequential": f"{_HERE}.models:Sequential",
    }
    | {name: f"{_HERE}.assignments:{name}" for name in _ASSIGNMENTS},
)
