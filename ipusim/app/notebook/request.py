"""The argument of a notebook function as a Request: a Request, options by a scenario's keys, or a scenario's path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipusim.api import Problem, Request, RequestError, runs
from ipusim.app.scenario.load import placed_request

#: Anything that a Request can be made from: itself, options, or the path of a scenario.
RequestLike = Request | Mapping[str, Any] | Path | str


def request(
    options: Mapping[str, Any] | None = None, /, *, description: str = "", folder: Path | str = ".", **keys: Any
) -> Request:
    """Return the Request of ``options``, which have a scenario's keys, or of those keys one by one.

    ``request({"system": {"name": "free"}, ...})`` is ``request(system={"name": "free"}, ...)``. Sequences may be
    tuples or arrays, and numbers NumPy's.

    Args:
        options: the options by a scenario's keys, such as ``system`` and ``pipeline``.
        description: a sentence that results show.
        folder: names of files in the options are relative to it.
        keys: further options, none of them among ``options``.

    Returns:
        The Request, which :func:`ipusim.run` takes.

    Raises:
        RequestError: with every problem of keys and values; those that only show when a program is laid out are
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
    if twice := sorted(data.keys() & keys.keys()):
        raise RequestError([Problem((key,), "expected each option once, got it a second time") for key in twice])
    return Request.from_dict(data | keys, description=description, folder=folder)


@contextmanager
def placed(source: RequestLike) -> Iterator[Request]:
    """Yield the Request of a notebook function's argument; errors from a scenario file have positions in it.

    Raises ScenarioError and ScenarioMemoryError for a file, in place of the RequestError and RequestMemoryError of the
    block; RequestError for an argument of another type.
    """
    if isinstance(source, str | Path):
        with placed_request(source) as loaded:
            yield loaded
    elif not (isinstance(source, Request) or hasattr(source, "keys")):
        expected = "a scenario as a path, a mapping of options or a Request"
        raise RequestError([Problem((), f"expected {expected}, got {runs.show(source)}")])
    else:
        yield source if isinstance(source, Request) else request(source)
