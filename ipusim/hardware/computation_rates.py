"""Rates of computation on an IPU, and of its code memory."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

from ipusim.hardware.rate import PODS, SHARE, described

_PRODUCTS: Final = "dense products measured on hardware (Graphcore Research, sparsity-benchmarks)"
_PROFILER: Final = "a dense layer profiled with Poplar 3.0 (Graphcore's ipu_tensorflow_addons, profiler_test.py)"
_BENCHMARKS: Final = (
    "PopLibs' benchmark rows (tests/benchmark_results.csv before 3a650a11), modelled cycles of GC2 and GC200"
)
_FIT: Final = "fitted to measured dense products (`ipusim validate`)"
_computation: Final = partial(described, part="computation")
_cycles: Final = partial(_computation, unit="cycles", bounds=(0, 10**6))
_code: Final = partial(described, unit="B", part="memory")


@dataclass(frozen=True)
class ComputationRates:
    """Rates that price passes on an IPU, and code; :class:`ipusim.hardware.rates.Rates` adds the remaining rates."""

    amp_ceiling: Fraction = _computation(
        Fraction("0.9433"),
        unit="of peak",
        bounds=SHARE,
        meaning="what rows that stream past reach of the matrix unit's multiply-accumulates",
        source=_FIT,
        plausible=("0.80", "0.95"),
        evidence=f"{_PRODUCTS}, large n; all of it in PopLibs' estimate, which has no memory conflicts",
    )
    exchange_efficiency: Fraction = _computation(
        Fraction("1.191"),
        unit="of nominal",
        bounds=(Fraction(1, 100), 10),
        meaning="what a tile receives of the exchange's nominal bytes in a cycle; twice that where a pair of tiles "
        "shares an operand",
        source=_FIT,
        plausible=("0.7", "1.3"),
        evidence="Poplar tutorial 6 measures 0.5 % more than PopLibs' rule (ExchangeEstimator.cpp); fits",
    )
    compute_set_cycles: Fraction = _cycles(
        Fraction("614.6"),
        meaning="sync, start and code of each compute set, of a product or of vector work",
        source=_FIT,
        plausible=(300, 2000),
        evidence=f"{_PRODUCTS}: the fixed 1,900 to 2,600 cycles of the smallest are about three sets; the sync is 150",
    )
    vector_slowdown: Fraction = _computation(
        Fraction("3.053"),
        unit="cycles",
        bounds=(Fraction(1, 10), 100),
        meaning="of a tile for an operation on the 8 bytes of its vector unit's path, loads and stores included",
        source=_FIT,
        plausible=("2.5", 5),
        evidence="hand-written stencils reach 1.03 to 1.45 of 3.9 TFLOP/s in single precision; fits 2.8 to 5.2",
    )
    transcendental_operations: Fraction = _computation(
        Fraction("4.7"),
        unit="operations",
        bounds=(1, 1000),
        meaning="operations of a tile's vector unit that one exp, log, tanh or square root takes as long as",
        source="the mean of PopLibs' cycles of these four in both types, over those of a square "
        "(lib/popops/popopsCycleEstimators.hpp)",
        plausible=(2, Fraction("11.5")),
        evidence="the same: exp, log and tanh 2 in half precision and 3 to 6 in single, a square root of a half 11.5",
    )
    product_layout_cycles: Fraction = _cycles(
        900,
        meaning="of a training program for each product, in which its operands are laid out anew; products that were "
        "measured alone have none",
        source=f"derived from {_BENCHMARKS}: what makes small products and convolutions of all three passes as long",
        plausible=(860, 1120),
        evidence="the same: 1,120 by the rows of GC2 alone, with which small ones of GC200 go from 0.78 to 1.06",
    )
    pool_layout_cycles: Fraction = _cycles(
        3000,
        meaning="the same for each pass of a pool",
        source=f"derived from {_BENCHMARKS}: the median of what 20 pools leave",
        plausible=(2000, 4000),
        evidence="the same: but for two pools of 8 x 8 images, which leave more",
    )
    variable_layout_cycles: Fraction = _cycles(
        13_700,
        meaning="the same of each variable at a weight update: its gradient, learning rate and casts",
        source=PODS,
        plausible=(5000, 20_000),
        evidence="ResNet-50's 161 variables leave -0.6 to 2.9 ms an update on a Bow, 1.7 on a GC200; six of a small "
        "network 60,000 and 70,000 cycles on one IPU",
    )
    program_code: Fraction = _code(
        4490,
        bounds=(0, 10**6),
        meaning="on each tile, of the code that every program has, and of the workers' stacks",
        source=f"{_PROFILER}: 32.8 MiB, less 25.9 of tensors and 0.6 of the layer's own code, over 1,472 tiles",
        plausible=(3000, 6000),
        evidence="a sum of two numbers on GC2, with stacks 4,358 bytes (Graphcore's TensorFlow, compilation report)",
    )
    compute_set_code: Fraction = _code(
        137,
        bounds=(0, 10**5),
        meaning="on each tile, of what each compute set adds to that: its start, its exchange, its vertices",
        source=f"{_PROFILER}: 590 KiB of a dense layer over 1,472 tiles, of about three compute sets (assumed)",
        plausible=(50, 500),
        evidence="one product stands for all; large and irregular exchanges take several times as much",
    )
