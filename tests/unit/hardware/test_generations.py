"""The chips' figures: each has a source, and together they give the published totals."""

from dataclasses import fields, replace

import pytest

from ipusim.base.errors import QuantityError
from ipusim.hardware.generations import BOW, GC2, GC200
from ipusim.hardware.host import ASSUMED_HOST, M2000_HOST
from ipusim.hardware.machines import MACHINES


@pytest.mark.parametrize("spec", [GC2, GC200, BOW, M2000_HOST, ASSUMED_HOST], ids=repr)
def test_every_figure_has_a_source(spec):
    figures = {each.name for each in fields(spec) if getattr(spec, each.name) is not None} - {"name", "sources"}
    assert set(spec.sources) == figures
    assert all(source.strip() for source in spec.sources.values())


def test_every_machine_says_where_it_is_from():
    assert all(machine.source and machine.description for machine in MACHINES.values())


@pytest.mark.parametrize(
    ("spec", "fp16_tflops", "fp32_tflops", "exchange_tb_per_s", "sram_mib"),
    [
        (GC2, 124.5, 31.1, 7.78, 304),
        (GC200, 250, 62.4, 7.8, 897),
        (BOW, 350, 87, 10.9, 897),
    ],
    ids=["GC2", "GC200", "BOW"],
)
def test_peak_figures_are_those_published(spec, fp16_tflops, fp32_tflops, exchange_tb_per_s, sram_mib):
    assert 2 * spec.macs_per_cycle(2) * spec.clock_hz / 1e12 == pytest.approx(fp16_tflops, rel=0.005)
    assert 2 * spec.macs_per_cycle(4) * spec.clock_hz / 1e12 == pytest.approx(fp32_tflops, rel=0.005)
    exchange = spec.tiles * spec.exchange_bytes_per_cycle_per_tile * spec.clock_hz
    assert exchange / 1e12 == pytest.approx(exchange_tb_per_s, rel=0.005)
    assert spec.sram_bytes == sram_mib * 2**20


def test_float64_is_charged_as_float32():
    assert GC200.macs_per_cycle(8) == GC200.macs_per_cycle(4) == 1472 * 16


def test_other_element_sizes_are_refused():
    with pytest.raises(QuantityError, match="GC200: expected elements of 2, 4 or 8 bytes, got 1"):
        GC200.macs_per_cycle(1)


def test_a_chip_without_tiles_is_refused():
    with pytest.raises(QuantityError, match="GC2: expected tiles above 0, got 0"):
        replace(GC2, tiles=0)


def test_another_clock_is_no_longer_the_publisher_s():
    slow = GC200.at_clock(1_300_000_000)
    assert (slow.clock_hz, slow.sources["clock_hz"]) == (1_300_000_000, "chosen by the user")
    assert GC200.clock_hz == 1_330_000_000
    assert replace(slow, clock_hz=GC200.clock_hz, sources=GC200.sources) == GC200
