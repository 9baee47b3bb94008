"""List the layers of a request's model in order, with repetitions expanded under numbered names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ipusim.model.layers.keys import EarlierLayer
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.fields import MAX_NAME
from ipusim.runs.request.layer_spec import MAX_LAYERS, BuiltSpec, LayerSpec, PythonSpec, RepeatSpec
from ipusim.runs.request.schema import Options


@dataclass(frozen=True)
class RequestedLayer:
    """A layer of the request; repetitions of a layer share a path.

    Attributes:
        path: path of the layer in the request.
        spec: keys of the layer.
        repetition_follows: whether the layer is the last of a repetition, and another repetition follows.
    """

    path: KeyPath
    spec: BuiltSpec | PythonSpec
    repetition_follows: bool = False


def model_layers(options: Options, findings: Findings) -> list[RequestedLayer]:
    """Return the layers of the model in order; empty without a model, or after recording too many layers.

    Duplicate names, and numbered names above the length limit, are recorded too.
    """
    entries = options.model.layers if options.model else ()
    if _too_many(entries, findings):
        return []
    layers = list(_expand(entries, ("model", "layers"), (), {}))
    earlier_names: set[str] = set()
    problems: dict[KeyPath, str] = {}
    for layer in layers:
        name = layer.spec.name
        if name in earlier_names:
            problems.setdefault(layer.path, f"expected a different name for each layer, got {name!r} again")
        elif len(name) > MAX_NAME:
            text = f"expected a name of at most {MAX_NAME} characters with its number, got {name!r}"
            problems.setdefault(layer.path, text)
        earlier_names.add(name)
    for path, text in problems.items():
        findings.add((*path, "name"), text)
    return layers


def numbered_name(name: str, numbers: Sequence[int]) -> str:
    """Return a repeated layer's name with its repetition numbers, outermost first.

    >>> numbered_name("dense", [3]), numbered_name("dense", [3, 0]), numbered_name("conv2", [3])
    ('dense3', 'dense3_0', 'conv2_3')
    """
    for number in numbers:
        name = f"{name}_{number}" if name[-1].isdigit() else f"{name}{number}"
    return name


def _too_many(entries: Sequence[LayerSpec], findings: Findings) -> bool:
    """Return whether repetitions make too many layers, and record a problem; nothing is expanded yet."""
    total = 0
    for index, entry in enumerate(entries):
        total += _count(entry)
        if total > MAX_LAYERS:
            text = (
                f"expected a model of at most {MAX_LAYERS} layers, got {total} up to here: repeat fewer, or less often"
            )
            key = ("repeat",) if isinstance(entry, RepeatSpec) else ()
            findings.add(("model", "layers", index, *key), text)
            return True
    return False


def _count(entry: LayerSpec) -> int:
    return entry.repeat * sum(map(_count, entry.layers)) if isinstance(entry, RepeatSpec) else 1


def _expand(
    entries: Sequence[LayerSpec], path: KeyPath, numbers: Sequence[int], outer_names: Mapping[str, str]
) -> Iterator[RequestedLayer]:
    """Yield the expanded layers of ``entries`` at ``path``, within the repetition ``numbers``.

    ``outer_names`` maps names of surrounding layers, as written, to their numbered names.
    """
    layers = [entry for entry in entries if not isinstance(entry, RepeatSpec)]
    names = {**outer_names, **{layer.name: numbered_name(layer.name, numbers) for layer in layers}}
    for index, entry in enumerate(entries):
        entry_path = (*path, index)
        if isinstance(entry, RepeatSpec):
            for number in range(entry.repeat):
                *first, last = _expand(entry.layers, (*entry_path, "layers"), (*numbers, number), names)
                yield from first
                yield last if number == entry.repeat - 1 else replace(last, repetition_follows=True)
        else:
            yield RequestedLayer(entry_path, _rename(entry, names) if numbers else entry)


def _rename(spec: BuiltSpec | PythonSpec, names: Mapping[str, str]) -> BuiltSpec | PythonSpec:
    """Number the name of a layer, and the names of layers that it refers to."""
    keys = spec.row.keys if isinstance(spec, BuiltSpec) else ()
    sources = {key.argument: getattr(spec, key.argument) for key in keys if key.hint is EarlierLayer}
    changes = {argument: names.get(name, name) for argument, name in sources.items()}
    return spec.model_copy(update={"name": names[spec.name], **changes})
