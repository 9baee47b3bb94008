"""Read passes from Megatron-LM's OpenTelemetry spans, as OTLP in JSON.

Names, attributes and exporters follow Megatron-LM's docs/user-guide/observability. With the span group ``microbatch``,
each pass has a span ``megatron.microbatch.forward`` or ``.backward``. Updates are ``megatron.optimizer_step``, receives
``megatron.p2p.recv_*``. ``megatron.forward_backward`` holds ``megatron.num_microbatches``. The resource states
``dl.pipeline_parallel.size``, and the rank as ``service.instance.id`` ``{run}-rank{N}``. OTLP has times in nanoseconds,
and lists in ``resourceSpans``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from ipusim.api import runs
from ipusim.app.profiles.names import MEGATRON_SPANS, Names
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import Fact, Options, Recording
from ipusim.app.profiles.workers import Lanes
from ipusim.base.errors import FileError

#: Beginning of such files.
STARTS: Final = re.compile(rb"\s*\{\s*\"resourceSpans\"")
_RANK: Final = re.compile(r"-rank(\d{1,6})$")
#: Attributes of the resource, and their facts.
_FACTS: Final = {
    "dl.pipeline_parallel.size": "pipeline_model_parallel_size",
    "dl.tensor_parallel.size": "tensor_model_parallel_size",
}
#: Name of a span, start and length in microseconds, attributes, and attributes of its resource.
_RawSpan = tuple[str, Fraction, Fraction, dict[str, Any], dict[str, Any]]


def read(source: Source, options: Options) -> Recording:
    """Return the passes in spans of Megatron-LM; raises FileError for damaged spans and missing ranks."""
    recording = Recording(
        source.path, "Megatron-LM's spans", stages_from="the resource attribute dl.pipeline_parallel.size"
    )
    lanes = Lanes(recording, Names(options.names, MEGATRON_SPANS))
    for name, start, us, attributes, resource in _spans(source):
        source.event()
        process = str(resource.get("service.instance.id", ""))
        if process not in recording.ranks:
            _note_resource(recording, process, resource)
        number = attributes.get("megatron.microbatch_id")
        lanes.add(name, (process, "", False), start, us, number if isinstance(number, int) else None)
    return lanes.finish()


def _note_resource(recording: Recording, process: str, resource: dict[str, Any]) -> None:
    """Store the rank of a process and the facts of its resource."""
    match = _RANK.search(process)
    if match is None:
        raise FileError(
            f"{recording.path}: expected service.instance.id of each resource to end with -rank and a number, got "
            f"{runs.show(process)}"
        )
    place = f"{recording.path}: resource {process}"
    recording.ranks[process] = Fact(int(match[1]), place)
    for name, key in _FACTS.items():
        if isinstance(resource.get(name), int) and resource[name] > 0:
            recording.facts.state(key, resource[name], place)
    stated_sizes = [resource.get(f"dl.{kind}_parallel.size") for kind in ("tensor", "pipeline", "data")]
    sizes = [size for size in stated_sizes if isinstance(size, int) and 0 < size < 1 << 20]
    if len(sizes) == len(stated_sizes):
        recording.facts.state("world_size", math.prod(sizes), place)


def _spans(source: Source) -> Iterator[_RawSpan]:
    """Yield a file's spans."""
    stream = source.json()
    while stream.peek():
        value = stream.value()
        if not isinstance(value, dict):
            raise FileError(f"{source.path}: expected spans of OpenTelemetry, got {runs.show(value)}")
        for group in _dicts(value.get("resourceSpans")):
            resource = _attributes(group.get("resource", {}))
            for scope in _dicts(group.get("scopeSpans")):
                for span in _dicts(scope.get("spans")):
                    start, end = (_time(source, span.get(f"{edge}TimeUnixNano")) for edge in ("start", "end"))
                    yield str(span.get("name")), start / 1000, (end - start) / 1000, _attributes(span), resource


def _dicts(values: Any) -> Iterator[dict[str, Any]]:
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, dict))


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    """Return OTLP attributes, a list of keys with typed values, as a mapping."""
    attributes = {}
    for entry in _dicts(holder.get("attributes") if isinstance(holder, dict) else None):
        value = entry.get("value")
        for kind, content in value.items() if isinstance(value, dict) else ():
            is_whole = kind == "intValue" and re.fullmatch(r"-?\d{1,18}", str(content))
            attributes[str(entry.get("key"))] = int(content) if is_whole else content
    return attributes


def _time(source: Source, value: Any) -> Fraction:
    if not re.fullmatch(r"\d{1,20}", str(value)):
        raise FileError(f"{source.path}: expected nanoseconds since 1970, got {runs.show(value)}")
    return Fraction(int(value))
