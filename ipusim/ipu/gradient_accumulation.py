"""Graphcore's ``gradient_accumulation``: the method that reduces accumulated gradients."""

from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
