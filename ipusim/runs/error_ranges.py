"""Name the kind of a run's model, and the usual error of simulated throughput for that kind.

Errors are relative to published throughputs; each row of ``ipusim validate`` is one published training. A range holds
the errors of most trainings of a kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from ipusim.base.csv_table import Columns, read_table
from ipusim.base.units import counted
from ipusim.runs.job import Job

#: File with the error range of each kind, as ``ipusim validate`` computes it (a test compares them). A kind with few
#: published trainings has no range: its ends are empty.
RANGES: Final = Path(__file__).with_suffix(".csv")
#: Columns of this file.
COLUMNS: Final = ("kind", "rows", "least", "most")
#: Suffix of a kind's name for runs on several pods.
SEVERAL_PODS: Final = ", several pods"
#: Kind of a model that is named by its layers.
_GROUPED: Final = "grouped convolutions"
#: Maximum size of this file.
_MOST_BYTES: Final = 2**16
#: Maximum bytes of all weights of a small network, in which time between layers matters as much as the layers' own
#: time.
_SMALL: Final = 20 * 10**6


def kind_of(job: Job) -> str:
    """Return the kind of a Job's model and run, by layers, weights and pods.

    Empty if no published training is of this kind.

    >>> from ipusim.api import Request, assemble
    >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
    >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
    >>> kind_of(assemble(Request.from_dict(options)))
    ''
    """
    model = job.request.options.model
    if model is None or job.request.options.pipeline.cycles is not None:
        return ""
    is_small = sum(stage.parameter_bytes + stage.untrained_bytes for stage in job.program.stages) <= _SMALL
    kind = "small networks" if is_small else _kind_of_layers(list(_nested_layers(model.layers)))
    return f"{kind}{SEVERAL_PODS}" if kind and job.system.pods > 1 else kind


def _kind_of_layers(layers: Sequence[Any]) -> str:
    """Return the kind of a large model from its layers; the first match wins."""
    types = {layer.type for layer in layers}
    has_attention, is_residual = "multi_head_attention" in types, {"conv2d", "residual"} <= types
    kinds = {
        "Conformers": "relative_multi_head_attention" in types,
        "GPT": has_attention and any(getattr(layer, "causal", False) for layer in layers),
        "vision transformers": has_attention and "conv2d" in types,
        "BERT, pre-training": has_attention and "masked_softmax_cross_entropy" in types,
        "BERT, fine-tuning": has_attention,
        "U-Nets": {"conv2d", "conv2d_transpose", "concatenate"} <= types,
        _GROUPED: is_residual and any(layer.type == "conv2d" and layer.groups > 1 for layer in layers),
        "ResNets": is_residual and "batch_norm" in types,
    }
    return next((kind for kind, fits in kinds.items() if fits), "")


def error_words(job: Job) -> str:
    """Return, in words, the range of errors of a Job's kind, or that no range is known."""
    return _words().get(kind_of(job), "not known: no training of a model of this kind is published")


def end_text(error: float) -> str:
    """Return an end of a range of errors in whole per cent; zero is always ``+0%``.

    >>> end_text(-0.061), end_text(-0.004)
    ('-6%', '+0%')
    """
    return f"{round(error, 2) + 0.0:+.0%}"


def range_words(least: float, most: float) -> str:
    """Return a range of errors of throughputs in words.

    >>> range_words(-0.415, 0.759), range_words(0.29, 0.337), range_words(-0.1, -0.05)
    ('from 41% too low to 76% too high', '29% to 34% too high', '10% to 5% too low')
    """
    ends = [round(error, 2) + 0.0 for error in (least, most)]
    sizes, sides = [f"{abs(end):.0%}" for end in ends], ["too low" if end < 0 else "too high" for end in ends]
    if sides[0] == sides[1]:
        return f"{' to '.join(sizes)} {sides[1]}"
    return f"from {sizes[0]} {sides[0]} to {sizes[1]} {sides[1]}"


@cache
def _words() -> dict[str, str]:
    """Return the range of each kind, in words."""
    words = {}
    for row in read_table(RANGES, Columns(COLUMNS, COLUMNS[:2], allows_others=False), _MOST_BYTES).rows:
        cells = row.cells
        ends = [float(cells[end]) for end in ("least", "most") if cells.get(end)]
        kind, number = cells["kind"], int(cells["rows"])
        words[kind] = (
            f"{range_words(*ends)}, in 4 of 5 cases (estimated from {_trainings(number, kind)})"
            if ends
            else f"not known: only {counted(number, 'published training')} of this kind ({kind})"
        )
    return words


def _trainings(number: int, kind: str) -> str:
    """Return published trainings of a kind in words.

    >>> _trainings(38, "BERT, pre-training"), _trainings(4, "ResNets, several pods")
    ('38 published pre-trainings of BERT', '4 published trainings of ResNets on several pods')
    """
    model, *details = kind.removesuffix(SEVERAL_PODS).split(", ")
    training = details[0] if details else "training"
    networks = "networks with " if model == _GROUPED else ""
    pods = " on several pods" if kind.endswith(SEVERAL_PODS) else ""
    return f"{counted(number, f'published {training}')} of {networks}{model}{pods}"


def _nested_layers(layers: Sequence[Any]) -> Iterator[Any]:
    """Yield layers, including nested ones."""
    for layer in layers:
        if hasattr(layer, "type"):
            yield layer
        for name in ("layers", "shortcut"):
            yield from _nested_layers(getattr(layer, name, None) or ())
