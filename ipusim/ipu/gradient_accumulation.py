"""How gradients are accumulated, in Graphcore's names."""

from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
