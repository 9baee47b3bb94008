"""Write a suggested plan as a scenario: the given file with changed keys, and a comment with the reason of each."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from ipusim.api import KeyPath, runs
from ipusim.app.render.tables import text_of
from ipusim.app.scenario.source import Source
from ipusim.app.suggest.suggestion import Suggestion

#: Options that a suggestion removes, with the option that takes their place.
_REPLACES: Final = {"pipeline.splits": "stages", "pipeline.device_mapping": "virtual_stages"}


def suggested_text(suggestion: Suggestion, source: Source) -> str:
    """Return the scenario of a suggestion.

    The result is the text of ``source``, with values of the plan and of ``--set``.
    """
    changes: dict[KeyPath, tuple[Any, str]] = {}
    for path, position in source.values.items():
        if path and str(position).startswith("--set ") and not any(path[: len(change)] == change for change in changes):
            changes[path] = (_value_at(source.data, path), "as given by --set")
    for name, new_value in suggestion.changes.items():
        path = tuple(name.split("."))
        old_value = _value_at(source.data, path)
        # A removed option is written with its effective value if the file had a value.
        needs_effective_value = new_value is None and old_value is not None
        value = reduce(getattr, map(str, path), suggestion.job.request.options) if needs_effective_value else new_value
        if value != old_value and not (old_value is None and _default(suggestion, name, value)):
            replaced_key = _REPLACES.get(name)
            instead = (
                ""
                if replaced_key is None or _value_at(source.data, (path[0], replaced_key)) is None
                else f"in place of {replaced_key}: "
            )
            was = instead if old_value is None else f"was {_value_text(old_value)}: "
            changes[path] = (value, "" if value is None else was + reason_for(suggestion, name))
        # Expectations of the given plan do not hold for the suggested plan.
    changes = {path: change for path, change in changes.items() if path[0] != "expect"} | {("expect",): (None, "")}
    return runs.edited(source.text, changes)


def _default(suggestion: Suggestion, name: str, value: Any) -> bool:
    """Return whether a value equals the effect of leaving the option out."""
    if name == "pipeline.device_mapping":
        return bool(value == list(range(len(value))))
    return (name, value) == ("pipeline.micro_batch_size", suggestion.baseline.micro_batch_size)


def _value_at(data: Any, path: KeyPath) -> Any:
    """Return the value at ``path``; None if the path does not exist."""
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def reason_for(suggestion: Suggestion, name: str) -> str:
    """Return the reason for an option of the suggested plan."""
    job = suggestion.job
    shape, system = job.program.shape, job.system
    ipus, stages = len(set(shape.mapping)), shape.positions
    hosts = f" x {system.hosts} hosts" if system.hosts > 1 else ""
    is_on = bool(suggestion.changes.get(name))
    reasons = {
        "system.auto_select_ipus": f"{system.replicas} replicas of {system.shards} IPUs"
        if system.replicas > 1
        else f"one replica on {ipus} of {system.count} IPUs",
        "system.selection_order": "the fastest copies between these IPUs",
        **dict.fromkeys(suggestion.added_options, "products in less memory leave room for a faster plan"),
        "system.enable_remote_buffers": "the optimizer's state lies in Streaming Memory",
        "pipeline.schedule": f"the fastest fitting schedule of the search, with {stages} stages"
        if stages > 1
        else "one stage needs no pipeline",
        "pipeline.sync": "the searched sync mode",
        "pipeline.splits": "the most even stages that fit, copies included",
        "pipeline.device_mapping": f"{stages} stages on {ipus} IPUs" if ipus > 1 else "all on one IPU",
        "pipeline.micro_batch_size": "the fastest of the searched sizes",
        "pipeline.gradient_accumulation_count": (
            f"x {system.replicas} replicas{hosts} x {job.program.micro_batch_size} samples is the global batch"
        ),
        "pipeline.allow_recompute": "kept activations would not fit, or would give a slower plan"
        if is_on
        else "kept activations fit",
        "pipeline.recomputation_mode": "the faster mode of recomputation" if is_on else "no recomputation",
        "pipeline.offload_weight_update_variables": "with optimizer state on the IPUs the stages would not fit"
        if is_on
        else "the state fits on its IPUs, without copies from and to Streaming Memory",
        "pipeline.replicated_optimizer_state_sharding": "each replica moves only its part"
        if is_on
        else "each replica has the whole state",
        "pipeline.variables_on_host": "Streaming Memory replaces the host, and the IPUs update the weights",
        "pipeline.offload_activations": "with all activations on their IPU the stages would not fit",
    }
    return reasons.get(name, "part of the suggested plan")


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        text = ", ".join(map(str, value))
        return f"[{text}]" if len(text) < 60 else f"a list of {len(value)}"
    return text_of(value)
