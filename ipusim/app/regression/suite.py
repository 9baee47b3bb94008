"""Test scenarios with expectations or pins, from files and folders, in parallel.

A pin is a file beside a scenario with recorded results of its run.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import joblib

from ipusim.app.regression.file import SUFFIX, check_target, has_pin, pin_path, read_pin
from ipusim.app.regression.outcome import Outcome
from ipusim.app.run_folder.output_file import RESULTS, check_output
from ipusim.base.errors import FileError, IpusimError, OptionError
from ipusim.base.files import MAX_SCENARIO_BYTES, open_file, read_up_to
from ipusim.base.workers import side_by_side

#: Top-level line of a scenario with expectations.
_EXPECT_LINE: Final = re.compile(rb"""^(?:["']?expect["']?[ \t]*:|\{.*\bexpect["']?[ \t]*:)""", re.MULTILINE)
#: Top-level line of every scenario.
_PIPELINE_LINE: Final = re.compile(rb"""^(?:["']?pipeline["']?[ \t]*:|\{.*\bpipeline["']?[ \t]*:)""", re.MULTILINE)
#: Files that identify a run folder; the scenario in a run folder is a copy.
_RUN_FOLDER_FILES: Final = {"summary.json", "timeline.npz"}
#: Estimated time of arithmetic on a weight array per micro-batch, in units of a span's time. The estimate only serves
#: to start long runs first.
_SPANS_PER_ARRAY: Final = 16
#: Estimated time of pricing a term of the costs (an entry of ``prices`` in a pin), in units of a span's time.
_SPANS_PER_PRICE: Final = 500


def scenarios_of(paths: Sequence[Path]) -> list[Path]:
    """Return the testable scenarios of files and folders: those with expectations or pins.

    Raises FileError for a missing file, a file without expectations and pin, a pin without its scenario, and folders
    without testable scenarios.
    """
    unique: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            scenarios = list(filter(tests_anything, _scenario_files(path, refuses_lone_pins=True)))
            if not scenarios:
                text = "expected a folder of scenarios with expect or a pin, got none: "
                raise FileError(f"{path}: {text}add expect to a scenario, or pin a scenario with `ipusim test --pin`")
            unique |= dict.fromkeys(scenarios)
        elif not path.exists():
            raise FileError(f"{path}: expected a scenario or a folder, got no such file")
        elif not tests_anything(path):
            text = "expected a scenario with expect or a pin, got neither: "
            raise FileError(f"{path}: {text}add expect, or pin the scenario with `ipusim test --pin`")
        else:
            unique[path] = None
    return list(unique)


def scenarios_to_pin(paths: Sequence[Path]) -> list[Path]:
    """Return the distinct files beside which pins can be written.

    Raises OptionError for an empty list, and OutputError for a foreign file in a pin's place.
    """
    if not paths:
        raise OptionError("pin", "expected scenarios, YAML files, with this option, got none")
    for path in paths:
        check_target(pin_path(path))
    return list(dict.fromkeys(paths))


def _scenario_files(folder: Path, *, refuses_lone_pins: bool = False) -> Iterator[Path]:
    """Yield the YAML files below a folder, except copies in run folders.

    Raises FileError for a pin without its scenario, if ``refuses_lone_pins``.
    """
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [Path(directory) / name for name in sorted(names)]
        scenarios = [path for path in paths if path.suffix in (".yaml", ".yml")]
        pinned = {pin_path(path) for path in scenarios}
        for path in paths:
            if refuses_lone_pins and path.name.endswith(SUFFIX) and path not in pinned:
                raise FileError(f"{path}: expected the scenario of this pin in the same folder, got no such file")
        if not {*names} >= _RUN_FOLDER_FILES:
            yield from scenarios


def tests_anything(path: Path) -> bool:
    """Return whether a scenario has expectations or a pin.

    A scenario or pin that cannot be read, such as a link in place of a pin, counts too, and its test reports the error.
    """
    try:
        return has_pin(path) or _matches(_EXPECT_LINE, path)
    except OSError:
        return True


def without_pin(paths: Sequence[Path]) -> list[Path]:
    """Return the scenarios without a pin, in files and folders, with or without expectations."""
    files = (file for path in paths for file in (_scenario_files(path) if path.is_dir() else [path]))
    return [path for path in dict.fromkeys(files) if not os.path.lexists(pin_path(path)) and _is_scenario(path)]


def pinless_text(count: int) -> str:
    """Return the sentence on the number of scenarios without a pin."""
    return f"no pin: {count} scenario{'' if count == 1 else 's'}"


def _is_scenario(path: Path) -> bool:
    try:
        return _matches(_PIPELINE_LINE, path)
    except OSError:
        return False


def _matches(pattern: re.Pattern[bytes], path: Path) -> bool:
    """Return whether a file matches a pattern; raises OSError for an unreadable file."""
    with open_file(path) as file:
        return pattern.search(read_up_to(file, MAX_SCENARIO_BYTES)) is not None


def check_all(
    paths: Iterable[Path],
    workers: int | None = None,
    *,
    renew: bool = False,
    needs_pin: bool = True,
    times: bool = False,
) -> Generator[Outcome, None, None]:
    """Yield the outcome of every scenario as it finishes; longest scenarios start first.

    A run that ends its process, such as by `os._exit` in a schedule, ends a worker, never this process; scenarios not
    done by this time are unfinished.

    Args:
        paths: the scenarios.
        workers: number of processes, by default one per core.
        renew: whether outcomes hold a changed pin; never for a run that misses expectations.
        needs_pin: whether only existing pins are renewed.
        times: whether times are computed twice, and differences reported as missed.

    Raises OptionError for fewer than one worker.
    """
    if workers is not None and workers < 1:
        raise OptionError("workers", f"expected a number from 1 up, got {workers}")
    queue = sorted(paths, key=_estimated_time, reverse=True)
    number = min(workers or joblib.cpu_count(), len(queue)) or 1
    calls = [(path, renew, needs_pin, times) for path in queue]
    remaining = dict.fromkeys(queue)
    try:
        for outcome in side_by_side(_outcome_of, calls, number, batch_size=1):
            remaining.pop(outcome.path)
            yield outcome
    except BrokenProcessPool:
        text = (
            "not done: a worker process ended early, by code of a scenario or from outside, for example by lack of "
            "memory: test its scenarios one by one, or continue with fewer workers"
        )
        for path in remaining:
            yield Outcome(path, "unfinished", mistake=f"{path}: {text}")


def _outcome_of(path: Path, renew: bool, needs_pin: bool, times: bool) -> Outcome:
    """Return the outcome of a scenario; only workers import the code of the test."""
    from ipusim.app.regression.scenario_check import check_scenario  # noqa: PLC0415

    return check_scenario(path, renew=renew, needs_pin=needs_pin, times=times)


def _estimated_time(path: Path) -> float:
    """Estimate a scenario's run time from its pin; infinite without a pin."""
    try:
        pin = read_pin(pin_path(path), path.stem)
    except (IpusimError, OSError):
        return math.inf
    spans: int = pin["spans"]["count"] + _SPANS_PER_PRICE * sum(map(len, pin["prices"].values()))
    learning = pin["learning"]
    return (
        spans if learning is None else spans + _SPANS_PER_ARRAY * learning["losses"]["count"] * len(learning["weights"])
    )


def junit_bytes(outcomes: Sequence[Outcome]) -> bytes:
    """Return the outcomes as JUnit XML, with seconds."""
    counts = {kind: sum(outcome.ended in kinds for outcome in outcomes) for kind, kinds in _JUNIT_KINDS.items()}
    suite = ElementTree.Element("testsuite", name="ipusim", tests=str(len(outcomes)))
    for kind, count in counts.items():
        suite.set(kind, str(count))
    for outcome in sorted(outcomes, key=lambda outcome: str(outcome.path)):
        attributes = {"classname": _printable(str(outcome.path.parent)), "name": _printable(outcome.path.name)}
        case = ElementTree.SubElement(suite, "testcase", attributes, time=f"{outcome.seconds:.3f}")
        text = _printable("\n".join(filter(None, [*outcome.missed, outcome.difference, outcome.mistake])))
        if outcome.ended != "held":
            kind = "failure" if outcome.ended == "missed" else "error"
            ElementTree.SubElement(case, kind, message=text.partition("\n")[0]).text = text
    ElementTree.indent(suite)
    content: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _printable(text: str) -> str:
    """Return a text without control characters, which XML cannot hold."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def check_junit(path: Path) -> None:
    """Refuse a path for JUnit results before the work; raises OptionError and OutputError.

    Existing files may be overwritten only if empty, or in this format and from ipusim.
    """
    if path.suffix.lower() != ".xml":
        raise OptionError("junit", f"expected a file named .xml, got {path}")
    check_output(path, RESULTS)


#: Counters of a JUnit suite, with the endings that each counts.
_JUNIT_KINDS: Final = {"failures": ("missed",), "errors": ("mistake", "unfinished")}
