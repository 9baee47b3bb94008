"""Make Requests from arguments of notebook functions: Request, Job, options, or path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipusim.api import Job, Problem, Request, RequestError, runs
from ipusim.app.scenario.load import placed_request
from ipusim.app.study.trial import change_request
from ipusim.base.errors import OptionError

#: Sources of a Request: a Request, a Job, options, or the path of a scenario.
RequestLike = Request | Job | Mapping[str, Any] | Path | str
#: Changed options by dotted names, or as nested mappings; None unsets an option.
Changes = Mapping[str, Any] | None


def request(
    options: Mapping[str, Any] | None = None, /, *, description: str = "", folder: Path | str = ".", **keys: Any
) -> Request:
    """Return the Request of options with a scenario's keys.

    ``request({"system": {"name": "free"}, ...})`` is ``request(system={"name": "free"}, ...)``. Sequences may be tuples
    or arrays, and numbers may be NumPy numbers.

    Args:
        options: options by a scenario's keys, such as ``system`` and ``pipeline``.
        description: sentence shown by results.
        folder: base folder of file names in the options.
        keys: further options, absent from ``options``.

    Returns:
        The Request, an argument of :func:`ipusim.run`.

    Raises:
        RequestError: with every problem of keys and values. Problems that only appear when a program is laid out are
            raised by :func:`ipusim.run`.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> request = ipusim.request(options, steps=2)
        >>> request.to_dict()["steps"]
        2
    """
    if options is not None and not isinstance(options, Mapping):
        raise RequestError([Problem((), f"expected a mapping of options, got {runs.show(options)}")])
    data = dict(options or {})
    if repeated := sorted(data.keys() & keys.keys()):
        raise RequestError(
            [Problem((key,), "expected each option once, got an option a second time") for key in repeated]
        )
    return Request.from_dict(data | keys, description=description, folder=folder)


@contextmanager
def open_request(source: RequestLike, changes: Changes = None) -> Iterator[Request]:
    """Yield the Request of a notebook function's argument, with file positions in errors.

    Raises ScenarioError and ScenarioMemoryError for a file, in place of the block's RequestError and
    RequestMemoryError; RequestError for an argument of another type; OptionError for changes that name an option twice.
    """
    values = _by_dotted_name(changes or {})
    if isinstance(source, str | Path):
        with placed_request(source, changes=values) as result:
            yield result
    elif isinstance(source, Request | Job):
        yield change_request(source if isinstance(source, Request) else source.request, values)
    elif hasattr(source, "keys"):
        yield change_request(request(source), values)
    else:
        sources = "a scenario as a path, a mapping of options, a Request or a Job"
        raise RequestError([Problem((), f"expected {sources}, got {runs.show(source)}")])


def _by_dotted_name(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten changes, possibly nested mappings, into plain values by dotted names."""
    values: dict[str, Any] = {}
    remaining = [*reversed(runs.plain(changes).items())]
    while remaining:
        name, value = remaining.pop()
        if isinstance(value, dict) and value:
            remaining += [(f"{name}.{key}", item) for key, item in reversed(value.items())]
        elif name in values:
            raise OptionError("changes", f"expected each option once, got {runs.show(name)} a second time")
        else:
            values[str(name)] = value
    return values
