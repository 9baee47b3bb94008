"""Graphcore's ``keras.ipu``: pipeline stages, models with options, and layers."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.runtime.offered import in_module, rows

_KERAS: Final = "ipusim.ipu.keras"

__getattr__, __dir__ = rows(
    __name__,
    {"extensions": f"{_KERAS}.extensions", "layers": f"{_KERAS}.layers"}
    | in_module(
        f"{_KERAS}.models",
        "Model PipelineModel PipelineSequential PipelinedModel Sequential SequentialPipelineModel",
    )
    | in_module(
        f"{_KERAS}.pipeline_stages",
        "FunctionalLayerPipelineStageAssignment ModelLayerPipelineStageAssignment PipelineStage "
        "SequentialLayerPipelineStageAssignment",
    ),
)
