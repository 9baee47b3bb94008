"""The cycles of one layer's pass, for tests of what layers cost."""

from __future__ import annotations

from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.model.profile import Work
from ipusim.pricing.passes import pass_cycles


def work_cycles(work: Work, ipu: IpuSpec, rates: Rates = DEFAULT_RATES) -> int:
    return pass_cycles((work,), ipu, rates)
