"""The layers and variable scopes of each stage of a program, by the names that a scenario would have for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipusim.errors import IpusimError
from ipusim.ipu.functions import TracedFunctions
from ipusim.ipu.scope_names import short_names
from ipusim.ipu.written_calls import WrittenStage, layer_of, written
from ipusim.timeline.timeline import layers_text


def scopes_of(functions: TracedFunctions) -> tuple[str, ...]:
    """Return the layers of each stage in one text, and the scopes of the variables of what is no layer."""
    try:
        stages = [written(each, functions.traced.inputs) for each in functions.traced.stages]
    except IpusimError:  # what a stage has run for every micro-batch is not refused for its names
        return ()
    found = short_names_of([list(dict.fromkeys(_scoped(stage))) for stage in stages])
    return tuple(map(layers_text, found)) if any(found) else ()


def short_names_of(scoped: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return short names of the layers of each stage, of their names with all scopes."""
    from ipusim.ipu.tensorflow.keras_layers import CoreLayer  # noqa: PLC0415 - TensorFlow's names, where layers are

    chosen = {each.kind for each in CoreLayer.__subclasses__()}
    names = iter(short_names([name for stage in scoped for name in stage], chosen))
    return tuple(tuple(next(names) for _ in stage) for stage in scoped)


def _scoped(stage: WrittenStage) -> Iterator[str]:
    """Yield the name of each layer that is called, and the scope of each variable that another function is called on.

    A layer without a name is called by its kind.
    """
    for node in stage.calls:
        layer = layer_of(node)
        scopes = [each.variable[0].rpartition("/")[0] for each in node.parents if each.variable is not None]
        if layer is None:
            yield from filter(None, scopes)
        else:
            yield layer.draws_as or next(filter(None, scopes), "") or getattr(layer.layer, "kind", "layer")
