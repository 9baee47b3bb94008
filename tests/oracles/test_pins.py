"""What is changed is what ``ipusim test`` names: in the text of shipped scenarios, and in the code below them.

Where the code is changed the scenario's text stays, so that the cause can come from what ran alone.
"""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from ruamel.yaml import YAML

from ipusim.api import pricing
from ipusim.app.regression.file import pin_path
from ipusim.app.regression.scenario_check import check_scenario
from ipusim.hardware import system as systems
from ipusim.hardware.formulas import Sum
from ipusim.lowering import point_to_point
from ipusim.machine import clock
from ipusim.model.learning.optimizers import SGD
from ipusim.pipeline import footprint
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.instructions import Code
from ipusim.pricing import passes, price
from ipusim.runs.assemble import named_files
from ipusim.runs.yaml_text import dump, edited
from ipusim.schedules import layout
from tests.effort import sampled, slowest
from tests.scenarios import ROOT

TUTORIAL, DIGITS = "tutorial_step3_pipelining", "digits_training"
#: Shipped scenarios, each shortened to what runs in a fraction of a second.
SHORT = {
    TUTORIAL: {("steps",): 1, ("pipeline", "repeat_count"): 2, ("data", "samples"): 1024},
    DIGITS: {("steps",): 1},
    "data_parallel_4x4": {("steps",): 1, ("pipeline", "repeat_count"): 1},
}


@cache
def text_of(name):
    """Return the text of a shipped scenario, shortened and without what it expects of its whole run."""
    text = (ROOT / "scenarios" / f"{name}.yaml").read_text()
    shortened = {path: (value, "") for path, value in SHORT.get(name, {}).items()}
    return edited(text, {("expect",): (None, ""), **shortened})


@pytest.fixture
def pinned(tmp_path):
    """Put a shipped scenario with its pin into a folder; return its path."""

    def make(name):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text_of(name))
        (tmp_path / "measured_stages.csv").write_bytes((ROOT / "scenarios" / "measured_stages.csv").read_bytes())
        pin_path(file).write_bytes(_pin(file, name))
        return file

    return make


_PINS: dict[str, bytes] = {}


def _pin(file, name):
    """Return the pin of a shipped scenario, which is made once."""
    if name not in _PINS:
        found = check_scenario(file, renew=True, needs_pin=False)
        assert found.ended == "held", found.mistake
        _PINS[name] = found.new_pin
    return _PINS[name]


@sampled(2)
@pytest.mark.parametrize(
    ("name", "path", "value", "what"),
    [
        (TUTORIAL, "pipeline.gradient_accumulation_count", 32, "shape: gradient_accumulation_count was 16, is 32"),
        (TUTORIAL, "optimizer.learning_rate", 0.02, "losses: step 0: the mean was"),
        (TUTORIAL, "seed", 7, "losses: step 0: the mean was"),
        ("inference", "precision", "float16", "price: "),
        (TUTORIAL, "model.layers.1.units", 320, "price: forward of stage0"),
        (TUTORIAL, "system.name", "bow2000", "device: system was m2000, is bow2000"),
        (TUTORIAL, "system.clock", "1.5 GHz", "device: clock_hz"),
        ("selection_orders", "rates.link", "32 Gbit/s", "price: copy 0 of group 0"),
        (DIGITS, "pipeline.splits", ["dense256", "dense128", "logits"], ""),
        ("overlapped_io", "infeed.element_bytes", "1 MiB", "price: host.infeed"),
        (DIGITS, "data.shuffle", False, "losses: "),
        ("schedules_four_ipus", "pipeline.stages.2.forward", 2000, "price: forward of"),
        ("schedules_four_ipus", "pipeline.sync", "point_to_point", "shape: sync was lock_step, is point_to_point"),
        ("schedules_four_ipus", "pipeline.repeat_count", 2, "shape: executions was 1, is 2"),
        ("gpu_schedules", "pipeline.schedule", "gpipe", "shape: schedule was 1f1b, is gpipe"),
        ("gpu_schedules", "system.overhead", "50 us", "price: "),
        ("recomputation", "pipeline.allow_recompute", False, "shape: recompute was True, is False"),
        ("selection_orders", "system.selection_order", "ZIGZAG", "device: "),
        ("optimizer_state_offload", "system.streaming_memory.bandwidth", "8 GB/s", ""),
        ("overlapped_io", "system.io_tiles.place_ops_on_io_tiles", False, ""),
        ("recomputation", "pipeline.recomputation_mode", "RecomputeAndBackpropagateInterleaved", ""),
    ],
)
def test_a_change_of_the_text_is_named(pinned, name, path, value, what):
    file = pinned(name)
    keys = tuple(int(key) if key.isdecimal() else key for key in path.split("."))
    file.write_text(edited(file.read_text(), {keys: (value, "")}))
    found = check_scenario(file)
    if found.ended == "mistake":
        pytest.fail(found.mistake)
    assert found.ended == "missed"
    assert found.difference.startswith(what)
    named = [line for line in found.difference.splitlines() if "the scenario " in line]
    assert any(keys[-1] in line for line in named), found.difference


def rate(name, factor):
    """Return a change of the code's own default of a rate."""

    def change(patch):
        real = named_files.rates_of

        def changed(*asked):
            found = real(*asked)
            return found.with_values(**{name: getattr(found, name) * Fraction(factor)})

        patch.setattr(named_files, "rates_of", changed)

    return change


def wrapped(owner, name, change):
    """Return a change of what a function of the code returns where a module uses it."""

    def put(patch):
        real = getattr(owner, name)
        patch.setattr(owner, name, lambda *words, **more: change(real(*words, **more)))
        passes.leaf_cycles.cache_clear()

    return put


def _learn_more(patch):
    real = SGD.apply
    patch.setattr(
        SGD,
        "apply",
        lambda self, weights, gradients, state: real(self, weights, {k: 2 * g for k, g in gradients.items()}, state),
    )


def _slow_clock(patch):
    real = clock.Clock.__init__

    def begin(self, *options):
        real(self, *options)
        spend = self.spend
        self.spend = lambda workers, what, cycles: spend(workers, what, cycles + 1 if cycles == 1000 else cycles)

    patch.setattr(clock.Clock, "__init__", begin)


def _swapped(table):
    """Return the passes of a Plan with the first two micro-batches in each other's place."""
    table = np.array(table, order="F")
    swap = {0: 1, 1: 0}
    table[:, 4] = [swap.get(each, each) for each in table[:, 4].tolist()]
    return table


def _blocking(parts):
    """Return what brings and hands on tensors, with sends for which the IPU waits, or does not where it did."""
    other = {Code.SEND: Code.BLOCKING_SEND, Code.BLOCKING_SEND: Code.SEND}
    for part in parts:
        part[5] = [other.get(code, code) for code in part[5].tolist()]
        yield part


@sampled(2)
@pytest.mark.parametrize(
    ("name", "change", "what", "cause"),
    [
        (TUTORIAL, rate("amp_ceiling", "1/2"), "price: forward of stage0", "rate 'amp_ceiling' was"),
        (TUTORIAL, rate("vector_slowdown", 2), "price: forward of stage0", "rate 'vector_slowdown' was"),
        ("selection_orders", rate("link_bytes_per_s", "1/2"), "price: copy", "rate 'link_bytes_per_s' was"),
        (TUTORIAL, rate("hop_latency_ns", 100), "price: copy", "rate 'hop_latency_ns' was"),
        (TUTORIAL, wrapped(passes, "operations", lambda all_: 2 * all_), "price: forward of", "law 'vector' was"),
        (TUTORIAL, wrapped(passes, "launch_cycles", lambda all_: 2 * all_), "price: ", "law 'launches' was"),
        (
            TUTORIAL,
            wrapped(systems, "nominal_sync_ns", lambda all_: all_ + 5000),
            "price: copy",
            "law 'copy sync' was",
        ),
        (
            TUTORIAL,
            wrapped(price, "pass_cycles", lambda all_: Sum(((all_, 1), (1, 1)))),
            "price: forward of stage0",
            "all terms of prices are equal: the sum of the terms differs",
        ),
        (TUTORIAL, wrapped(layout, "lay_out", _swapped), "Plan: IPU 0, instruction", "is infeed 1"),
        ("schedules_four_ipus", wrapped(layout, "lay_out", _swapped), "Plan: IPU 0, instruction", "is infeed 1"),
        ("gpu_schedules", wrapped(point_to_point, "_tensors", _blocking), "Plan: IPU 0, instruction", "send 0->1"),
        (
            TUTORIAL,
            wrapped(footprint, "_resident", lambda held: [*held, (Holder.TEMPORARY, 2**26)]),
            "memory: IPU 0, temporary data of matrix products, was",
            "the peak was",
        ),
        (TUTORIAL, _learn_more, "losses: step 0: the mean was", ""),
        ("schedules_four_ipus", _slow_clock, "time: span ", "the machine runs the plan differently"),
    ],
)
def test_a_change_of_the_code_is_named(pinned, monkeypatch, name, change, what, cause):
    file = pinned(name)
    change(monkeypatch)
    try:
        found = check_scenario(file)
    finally:
        monkeypatch.undo()
        passes.leaf_cycles.cache_clear()
    assert found.mistake == ""
    assert found.difference.startswith(what), found.difference
    assert cause in found.difference, found.difference
    assert "the scenario sets" not in found.difference
    assert check_scenario(file).ended == "held"


def reversed_keys(data):
    """Return the same mappings with their keys in the other order."""
    if isinstance(data, dict):
        return {key: reversed_keys(data[key]) for key in reversed(data)}
    return [reversed_keys(each) for each in data] if isinstance(data, list) else data


def with_defaults(data):
    """Return a scenario with more of its defaults written out."""
    pipeline = {"repeat_count": 1, "micro_batch_size": 1, "schedule": "grouped", "offload_activations": False}
    found = {"seed": 0, "steps": 1, "precision": "float32", "use_synthetic_data": False} | data
    return found | {"pipeline": pipeline | data["pipeline"], "infeed": {"prefetch_depth": 3} | data.get("infeed", {})}


def in_capitals(data):
    """Return a scenario whose schedule is written as Graphcore does."""
    pipeline = data["pipeline"]
    return data | {"pipeline": pipeline | {"schedule": pipeline.get("schedule", "grouped").capitalize()}}


#: Changes that change nothing, of the text or of the data.
NOTHING = {
    "comments": lambda data, text: f"# More of it.\n{text}\n# The end.\n",
    "order of keys": lambda data, text: dump(reversed_keys(data)),
    "defaults": lambda data, text: dump(with_defaults(data)),
    "case": lambda data, text: dump(in_capitals(data)),
    "expectation": lambda data, text: dump(data | {"expect": {"executions": "at least 1"}}),
}


#: Scenarios in which they are made.
UNCHANGED = (
    *(TUTORIAL, "schedules_four_ipus", "recomputation", "overlapped_io", "measured_stages"),
    *("optimizer_state_offload", "small_superstep", "host_embedding"),
)


def _two_each():
    """Yield each scenario with each change, of which two are made in each by default, and each in three."""
    for row, name in enumerate(UNCHANGED):
        for column, how in enumerate(NOTHING):
            chosen = (column - row) % len(NOTHING) in (0, 2)
            yield pytest.param(name, how, marks=[] if chosen else slowest)


@sampled(2)
@pytest.mark.parametrize(("name", "how"), [*_two_each()])
def test_a_change_that_changes_nothing_is_none(pinned, name, how):
    file = pinned(name)
    text = file.read_text()
    data = YAML(typ="safe", pure=True).load(text)
    data.pop("expect", None)
    changed = NOTHING[how](data, text)
    assert changed != text
    file.write_text(changed)
    found = check_scenario(file)
    assert (found.ended, found.difference, found.mistake) == ("held", "", "")


def test_the_same_quantity_in_another_unit_is_no_change(pinned):
    file = pinned("overlapped_io")
    text = file.read_text()
    assert "256 KiB" in text
    file.write_text(text.replace("256 KiB", "262144 B").replace("1.2 ms", "1200 us"))
    assert check_scenario(file).ended == "held"


def test_the_prices_of_a_run_are_worked_out_once(pinned, monkeypatch):
    """They took half of what it takes to hold a run of resnet50 that is priced alone."""
    file, calls, real = pinned("recomputation"), [], pricing.terms_of
    monkeypatch.setattr(pricing, "terms_of", lambda *words: calls.append(words) or real(*words))
    assert check_scenario(file).ended == "held"
    assert len(calls) == 1
