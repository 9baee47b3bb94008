"""Find the first difference of a run from its pin, with its causes.

A pin holds the recorded results of an earlier run. Causes come from Plan, options and prices. A price is the cycles of
an operation, computed by a formula called law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ipusim.api import Run, pipelines, runs
from ipusim.app.regression.listed import first_difference
from ipusim.app.regression.pin import instructions, pin_of, spans
from ipusim.base.units import format_bytes, format_seconds

#: Tolerances of losses and weights between machines with different rounding, by precision.
_TOLERANCES: Final = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-9}
#: Maximum number of listed changes of the request.
_MOST_ITEMS: Final = 5
#: Names of memory contents in messages, by name in pins.
_LABELS: Final = {holder.value: holder.label for holder in pipelines.Holder}
#: Differences of losses or weights up to this value are rounding.
_ZERO_TOLERANCE: Final = 1e-12


@dataclass(frozen=True)
class Difference:
    """First difference of a run from its pin.

    Attributes:
        subject: ``device``, ``shape``, ``Plan``, ``price``, ``time``, ``memory``, ``losses``, ``weights`` or ``order``.
        text: old and new value.
        causes: causes of the difference: changed prices, rates, options and versions.
    """

    subject: str
    text: str
    causes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the difference in one line, and its causes in lines below."""
        return "\n".join([f"{self.subject}: {self.text}", *(f"  {cause}" for cause in self.causes)])

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {"what": self.subject, "text": self.text, "causes": list(self.causes)}


def difference(pin: Mapping[str, Any], run: Run) -> Difference | None:
    """Return the first difference of ``run`` from its pin; None if they agree."""
    current = pin_of(run)
    change = next(_differences(pin, current, run), None)
    if change is None:
        return None
    versions = (
        f"the pin was made with {name} {pinned}, this is {value}"
        for name, pinned, value in _changes(pin["versions"], current["versions"])
    )
    options = _changed_options(pin["asked"], current["asked"])
    causes = (*change.causes, *options, *_changed_period(pin, current), *versions)
    return Difference(change.subject, change.text, causes)


def _differences(pin: Mapping[str, Any], current: Mapping[str, Any], run: Run) -> Iterator[Difference]:
    """Yield the differences, causes before their effects."""
    for part in ("device", "shape"):
        for name, pinned, value in _changes(pin[part], current[part]):
            yield Difference(part, f"{name} was {_text(pinned)}, is {_text(value)}")
    if pin["plan"] != current["plan"]:
        yield from _plan_differences(pin, run)
    yield from _price_differences(pin, current)
    has_same_order = pin["format_version"] == current["format_version"]
    yield from _time_differences(pin, current, run, has_same_order=has_same_order)
    yield from _memory_differences(pin["memory"], current["memory"])
    yield from _learning_differences(pin["learning"], current["learning"])
    if not has_same_order and pin["spans"] != current["spans"]:
        cause = "phases, lengths and the number of spans are the same; spans of one cycle have another order"
        text = "spans have another order by a new rule, times are equal: renew the pin with --update"
        yield Difference("order", text, (cause,))


def _changes(pinned: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, old and new value of every changed entry; None for a missing entry."""
    for name in dict.fromkeys([*pinned, *current]):
        if pinned.get(name) != current.get(name):
            yield name, pinned.get(name), current.get(name)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _plan_differences(pin: Mapping[str, Any], run: Run) -> Iterator[Difference]:
    plan = instructions(run.job.whole.plan)
    for ipu in sorted({*map(int, pin["plan"]), *plan}):
        text = first_difference(f"IPU {ipu}, instruction", pin["plan"].get(str(ipu)), plan.get(ipu))
        if text:
            yield Difference("Plan", text)


def _price_differences(pin: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[Difference]:
    costs = list(_changes(pin["costs"], current["costs"]))
    prices = [
        (term, law, pinned, value)
        for term in dict.fromkeys([*pin["prices"], *current["prices"]])
        for law, pinned, value in _changes(pin["prices"].get(term, {}), current["prices"].get(term, {}))
    ]
    cycles = [price for price in prices if _cycles(price[2]) != _cycles(price[3])]
    if not costs and not cycles:
        return
    causes = [f"{term}: law {law!r} was {_text(pinned)}, is {_text(value)}" for term, law, pinned, value in cycles[:1]]
    rates = [change for change in _changes(pin["rates"], current["rates"]) if None not in change]
    causes += [f"rate {name!r} was {pinned}, is {value}" for name, pinned, value in rates]
    if not rates and cycles:
        cause = "the priced work differs, or the law reads different numbers of the work"
        if _formula(cycles[0][2]) == _formula(cycles[0][3]):
            cause = f"the law {cycles[0][1]!r} itself differs"
        causes.append(f"all rates are the same: {cause}")
    elif not rates:
        causes.append("all rates and all terms of prices are equal: the sum of the terms differs")
    if costs:
        name, pinned, value = costs[0]
        text = f"{name} was {_text(pinned)} cycles, is {_text(value)}"
    else:
        term, law, pinned, value = cycles[0]
        text = f"{term}, {law}, was {_cycles(pinned)} cycles, is {_cycles(value)}"
    more = len(costs) - 1
    yield Difference("price", text + (f" (and {more:,} more)" if more > 0 else ""), tuple(causes))


def _cycles(price: str | None) -> str:
    return price.partition(" = ")[0] if price else "0"


def _formula(price: str | None) -> str:
    return price.partition(" = ")[2] if price else ""


def _time_differences(
    pin: Mapping[str, Any], current: Mapping[str, Any], run: Run, *, has_same_order: bool
) -> Iterator[Difference]:
    same_spans = (
        pin["spans"] == current["spans"] if has_same_order else pin["spans"]["count"] == current["spans"]["count"]
    )
    text = "" if same_spans else first_difference("span", pin["spans"], spans(run.timeline))
    totals = [
        f"{name} was {_text(pinned)}, is {_text(value)}"
        for name, pinned, value in _changes(pin["time"], current["time"])
    ]
    if text or totals:
        cause = "Plan and prices are equal: the machine runs the plan differently"
        yield Difference("time", text or totals[0], (cause, *totals[: 1 if text else 0]))


def _memory_differences(pinned: Mapping[str, Any] | None, current: Mapping[str, Any] | None) -> Iterator[Difference]:
    for ipu, old, new in _changes(pinned or {}, current or {}):
        if old is None or new is None:
            text = f"IPU {ipu} held {_text(old and old['peak'])}, holds {_text(new and new['peak'])}"
            yield Difference("memory", text)
            continue
        moment = "" if old["during"] == new["during"] else f" (in {new['during']}, was in {old['during']})"
        holders = [change for change in _changes(old, new) if change[0] not in ("peak", "during")]
        if holders:
            holder, old_bytes, new_bytes = max(holders, key=lambda entry: abs((entry[2] or 0) - (entry[1] or 0)))
            sizes = f"was {format_bytes(old_bytes or 0)}, is {format_bytes(new_bytes or 0)}"
            text = f"IPU {ipu}, {_LABELS.get(holder, holder)}, {sizes}{moment}"
            yield Difference("memory", text, (f"the peak was {old['peak']:,} B, is {new['peak']:,} B",))
        else:
            yield Difference("memory", f"IPU {ipu} has its peak in {new['during']}, had it in {old['during']}")


def _learning_differences(pinned: Mapping[str, Any] | None, current: Mapping[str, Any] | None) -> Iterator[Difference]:
    if pinned is None or current is None:
        if pinned is not current:
            words = [("nothing" if state is None else "losses and weights") for state in (pinned, current)]
            yield Difference("losses", f"the run computed {words[0]}, computes {words[1]}")
        return
    if pinned["precision"] != current["precision"]:
        yield Difference("losses", f"precision was {pinned['precision']}, is {current['precision']}")
    tolerance = _TOLERANCES[current["precision"]]
    yield from _loss_differences(pinned["losses"], current["losses"], tolerance)
    for old_values, new_values in zip(pinned["evaluations"], current["evaluations"], strict=False):
        if not all(_near(a, b, tolerance) for a, b in zip(old_values, new_values, strict=True)):
            yield Difference(
                "losses", f"evaluation after step {old_values[0]}: was {old_values[1:]}, is {new_values[1:]}"
            )
    # A gradient may be rounding noise, as for a bias of attention's keys. Optimizers that divide by the gradient's
    # size make random steps. Hence tolerances are relative to the norm of the whole set of weights.
    scale = _norm_of_all(pinned["weights"])
    for name, old_values, new_values in _changes(pinned["weights"], current["weights"]):
        if old_values is None or new_values is None or old_values["shape"] != new_values["shape"]:
            shapes = [weight and weight["shape"] for weight in (old_values, new_values)]
            yield Difference("weights", f"{name}: the shape was {_text(shapes[0])}, is {_text(shapes[1])}")
        elif not (
            _near(old_values["norm"], new_values["norm"], tolerance, scale)
            and _near(old_values["mean"], new_values["mean"], tolerance, scale)
        ):
            yield Difference("weights", f"{name}: norm was {old_values['norm']}, is {new_values['norm']}")


def _norm_of_all(weights: Mapping[str, Any]) -> float:
    """Return the norm of the weights with known norms."""
    norms = [weight["norm"] for weight in weights.values()]
    return math.hypot(*(norm for norm in norms if isinstance(norm, int | float)))


def _loss_differences(pinned: Mapping[str, Any], current: Mapping[str, Any], tolerance: float) -> Iterator[Difference]:
    if pinned["sha256"] == current["sha256"]:
        return
    if pinned["count"] != current["count"]:
        yield Difference("losses", f"there were {pinned['count']:,}, there are {current['count']:,}")
    for step, (old_mean, new_mean) in enumerate(zip(pinned["mean_by_step"], current["mean_by_step"], strict=False)):
        if not _near(old_mean, new_mean, tolerance):
            yield Difference(
                "losses", f"step {step}: the mean was {old_mean}, is {new_mean}{_by_how_much(old_mean, new_mean)}"
            )
    if not _near(pinned["last"], current["last"], tolerance):
        yield Difference("losses", f"last step: the mean was {pinned['last']}, is {current['last']}")


def _near(a: Any, b: Any, tolerance: float, scale: Any = 0.0) -> bool:
    """Return whether two numbers agree up to rounding; ``scale`` is the norm of the set of both."""
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return bool(a == b)
    size = max(abs(a), abs(b), scale if isinstance(scale, int | float) else 0.0)
    return abs(a - b) <= tolerance * size + _ZERO_TOLERANCE


def _by_how_much(old: Any, new: Any) -> str:
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in (old, new)) or not old:
        return ""
    return f", by {abs(new / old - 1):.3g} of the value {'more' if new > old else 'less'}"


def _changed_period(pin: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """Yield the old and new time per weight update, or per execution of inference, if they differ."""
    old, new = _period_text(pin), _period_text(current)
    if old != new:
        yield f"the time per {'weight update' if current['shape']['training'] else 'execution'} was {old}, is {new}"


def _period_text(pin: Mapping[str, Any]) -> str:
    """Return the time from one weight update to the next; ``not known`` if a file has no such numbers."""
    numbers = (pin["time"].get("run_cycles"), pin["shape"].get("executions"), pin["device"].get("clock_hz"))
    if not all(isinstance(number, int) and 0 < number <= runs.MAX_CYCLES for number in numbers):
        return "not known"
    cycles, executions, clock_hz = numbers
    return format_seconds(cycles / executions / clock_hz)


def _changed_options(pinned: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scenario's options that changed since the pin."""
    changes = [
        f"the scenario sets {name}: {_text(value)}, was {_text(old)}"
        if None not in (value, old)
        else f"the scenario {'no longer sets' if value is None else 'now sets'} {name}: {_text(old or value)}"
        + (" any more" if value is None else ", did not")
        for name, old, value in _changes(pinned, current)
    ]
    yield from changes[:_MOST_ITEMS]
    if len(changes) > _MOST_ITEMS:
        yield f"and {len(changes) - _MOST_ITEMS} more options of the scenario"
