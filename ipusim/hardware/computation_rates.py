"""Define the rates of computation on an IPU, and of its code memory: defaults, ranges and sources."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

from ipusim.hardware.rate import PODS, SHARE, describe

_PRODUCTS: Final = "dense products measured on hardware (Graphcore Research, sparsity-benchmarks)"
_PROFILER: Final = "a dense layer profiled with Poplar 3.0 (Graphcore's ipu_tensorflow_addons, profiler_test.py)"
_BENCHMARKS: Final = (
    "PopLibs' benchmark rows (tests/benchmark_results.csv before 3a650a11), modelled cycles of GC2 and GC200"
)
_FIT: Final = "fitted to measured dense products (`ipusim validate`)"
_computation: Final = partial(describe, part="computation")
_cycles: Final = partial(_computation, unit="cycles", bounds=(0, 10**6))
_code: Final = partial(describe, unit="B", part="memory")


@dataclass(frozen=True)
class ComputationRates:
    """Rates that price passes on an IPU, and code; :class:`ipusim.hardware.rates.Rates` adds the remaining rates."""

    amp_ceiling: Fraction = _computation(
        Fraction("0.9433"),
        unit="of peak",
        bounds=SHARE,
        meaning="share of the matrix unit's peak rate reached while rows stream through the unit",
        source=_FIT,
        plausible=("0.80", "0.95"),
        evidence=f"{_PRODUCTS} with large n; PopLibs' estimate reaches the whole peak, as it knows no memory conflicts",
    )
    exchange_efficiency: Fraction = _computation(
        Fraction("1.191"),
        unit="of nominal",
        bounds=(Fraction(1, 100), 10),
        meaning="bytes that a tile receives per cycle, as a share of the exchange's nominal bytes; doubled if a pair "
        "of tiles shares an operand",
        source=_FIT,
        plausible=("0.7", "1.3"),
        evidence="Poplar tutorial 6 measures 0.5 % more than PopLibs' rule (ExchangeEstimator.cpp); fits lie "
        "within the range",
    )
    compute_set_cycles: Fraction = _cycles(
        Fraction("614.6"),
        meaning="cycles of sync, start and control code of each compute set of products and vector work",
        source=_FIT,
        plausible=(300, 2000),
        evidence=f"{_PRODUCTS}: the smallest products take a fixed 1,900 to 2,600 cycles, about three compute sets; a "
        "sync takes 150",
    )
    vector_slowdown: Fraction = _computation(
        Fraction("3.053"),
        unit="cycles",
        bounds=(Fraction(1, 10), 100),
        meaning="cycles of a tile for an operation on the 8 bytes of its vector unit's path, with loads and stores",
        source=_FIT,
        plausible=("2.5", 5),
        evidence="hand-written stencils reach 1.03 to 1.45 of 3.9 TFLOP/s in single precision; fits give 2.8 to 5.2",
    )
    transcendental_operations: Fraction = _computation(
        Fraction("4.7"),
        unit="operations",
        bounds=(1, 1000),
        meaning="time of one exp, log, tanh or square root, in operations of a tile's vector unit",
        source="the mean of PopLibs' cycles of these four functions in both types, divided by the cycles of a square "
        "(lib/popops/popopsCycleEstimators.hpp)",
        plausible=(2, Fraction("11.5")),
        evidence="by PopLibs' cycles, exp, log and tanh take 2 in half precision and 3 to 6 in single precision, and a "
        "square root takes 11.5 in half precision",
    )
    product_layout_cycles: Fraction = _cycles(
        900,
        meaning="cycles for each product of a training program to rearrange its operands; products measured on their "
        "own have none",
        source=f"derived from {_BENCHMARKS}: the cycles that small products and convolutions of all three passes need "
        "in addition",
        plausible=(860, 1120),
        evidence="PopLibs' benchmark rows of GC2 alone give 1,120 cycles; with 1,120 cycles the ratio for small "
        "products of GC200 goes from 0.78 to 1.06",
    )
    pool_layout_cycles: Fraction = _cycles(
        3000,
        meaning="cycles for each pass of a pool to rearrange its operands",
        source=f"derived from {_BENCHMARKS}: the median of the cycles that 20 pools need in addition",
        plausible=(2000, 4000),
        evidence="PopLibs' benchmark rows, except two pools of 8 x 8 images, which need more",
    )
    variable_layout_cycles: Fraction = _cycles(
        10_600,
        meaning="cycles for each variable at a weight update to rearrange its gradient, with its learning rate and "
        "casts",
        source=PODS,
        plausible=(5000, 20_000),
        evidence="beyond the other simulated times, an update of ResNet-50's 161 variables takes -1.5 to 1.4 ms on a "
        "Bow and 1.1 ms on a GC200, and six variables of a small network take 60,000 and 70,000 cycles on one IPU",
    )
    program_code: Fraction = _code(
        4490,
        bounds=(0, 10**6),
        meaning="bytes on each tile for the code common to all programs and for the workers' stacks",
        source=f"{_PROFILER}: 32.8 MiB, less 25.9 of tensors and 0.6 of the layer's own code, over 1,472 tiles",
        plausible=(3000, 6000),
        evidence="a sum of two numbers takes 4,358 bytes on GC2, with stacks (Graphcore's TensorFlow, compilation "
        "report)",
    )
    compute_set_code: Fraction = _code(
        137,
        bounds=(0, 10**5),
        meaning="bytes on each tile that each compute set adds to the program's code: its start, its exchange, its "
        "vertices",
        source=f"{_PROFILER}: 590 KiB of a dense layer over 1,472 tiles, of about three compute sets (assumed)",
        plausible=(50, 500),
        evidence="one product represents all compute sets; large and irregular exchanges take several times as much",
    )
