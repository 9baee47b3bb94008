"""The cycles of one layer's pass, for tests of what layers cost."""

from __future__ import annotations

from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.model.work import Work
from ipusim.pricing.passes import pass_cycles


def work_cycles(work: Work, ipu: IpuSpec, rates: Rates = DEFAULT_RATES) -> int:
    return pass_cycles((work,), ipu, rates)


def vector_operations(work: Work) -> int:
    """Return the operations of all kinds of vector work: one each, but four for exp, tanh, a square root..."""
    vector = work.vector
    return vector.elementwise + vector.reductions + vector.quotients + 4 * vector.transcendentals
