"""A record: requests as text, and every figure that their runs came to, in one compressed JSON file."""

from __future__ import annotations

import io
import json
import lzma
import platform
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.linalg.blas  # whose library is among those that are told apart
from numpy.lib.introspect import opt_func_info
from threadpoolctl import threadpool_info

from ipusim.app.scenario import load_job
from ipusim.base.errors import IpusimError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.run import Run
from tests.programs import Ran
from tests.replay.figures import PICTURES, figures, pictures
from tests.replay.requests import Requested
from tests.suite import forget_programs

FORMAT = "ipusim replay 1"


def runs(request: Requested, folder: Path) -> Iterator[tuple[str, Run]]:
    """Yield each run of a request, whose files are put into ``folder``, with what it is called among several."""
    for name, text in request.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / request.file
    if path.suffix != ".py":
        yield "", execute(load_job(path))
        return
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        ran = Ran(path, request.arguments)
        for number, each in enumerate(ran.recorded):
            yield f"pipeline {number}: ", each.run(each.job.request)
        if request.changes:
            again, data = ran.recorded[-1].job.request.replace(request.changes), ran.names["X"]
            traced: Any = again.functions
            functions = replace(traced, elements=lambda index: (data[index % len(data)],))
            yield "again: ", execute(assemble(replace(again, functions=functions)))


def outcome(request: Requested, draw: bool) -> dict[str, Any]:
    """Run a request and return every figure of it by its name, also where it is refused or fails."""
    found: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        try:
            for which, run in runs(request, Path(name)):
                of = figures(run) | (pictures(run) if draw else {})
                found.update((f"{which}{figure}", value) for figure, value in of.items())
        except Exception as error:  # whatever it is, it is what the request came to
            what = "refused" if isinstance(error, IpusimError) else type(error).__name__
            found["ended"] = f"{what}: {error}".replace(name, "")
        finally:
            forget_programs()
    return found


def outcomes(requests: Sequence[Requested], *, draw: bool, jobs: int) -> Iterator[dict[str, Any]]:
    """Yield what each request came to, in their order; pictures are drawn of scenarios of this repository alone."""
    drawn = [draw and each.name.startswith("scenario ") for each in requests]
    if jobs == 1:
        yield from map(outcome, requests, drawn)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(outcome, requests, drawn)


def machine() -> dict[str, Any]:
    """Return what the last bits of arithmetic depend on.

    BLAS and NumPy choose their loops by the processor: BLAS by its model and its caches too, NumPy by its instructions.
    """
    used = {f"{each['internal_api']} {each.get('version')} {each.get('architecture')}" for each in threadpool_info()}
    loops = {loop["current"] for loops in opt_func_info().values() for loop in loops.values()}
    return {
        "processor": _processor(),
        "loops": sorted(loops),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "libraries": sorted(used),
    }


def _processor() -> str:
    """Return the processor's architecture and, where Linux says it, its model."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().partition("\n\n")[0].splitlines() if info.is_file() else []
    said = dict(re.split(r"\s*:\s*", line, maxsplit=1) for line in lines if ":" in line)
    named = (said.get(key) for key in ("vendor_id", "cpu family", "model", "stepping", "cache size"))
    return " ".join([platform.machine(), *filter(None, named)])


def write(path: Path, requests: Sequence[Requested], *, draw: bool = False, jobs: int = 1) -> None:
    """Run requests and write what they come to; the same runs give the same bytes."""
    here = machine()  # before runs, which may load further libraries, as a comparison does
    found = [
        {"request": each.as_data(), "figures": came_to}
        for each, came_to in zip(requests, outcomes(requests, draw=draw, jobs=jobs), strict=True)
    ]
    data = {"format": FORMAT, "machine": here, "pictures": draw, "requests": found}
    path.write_bytes(lzma.compress(json.dumps(data, separators=(",", ":")).encode()))


@dataclass(frozen=True)
class Record:
    """What was recorded.

    Attributes:
        requests: what was run.
        figures: what each of them came to.
        pictures: whether pictures were drawn too.
        same_machine: whether arithmetic here has the bits that it had there.
    """

    requests: tuple[Requested, ...]
    figures: tuple[dict[str, Any], ...]
    pictures: bool
    same_machine: bool

    def only(self, words: str) -> Record:
        """Return the part of it whose requests have ``words`` in their names."""
        pairs = [pair for pair in zip(self.requests, self.figures, strict=True) if words in pair[0].name]
        return replace(
            self, requests=tuple(request for request, _ in pairs), figures=tuple(figures for _, figures in pairs)
        )

    def without_pictures(self) -> Record:
        """Return it without pictures, which take longer than all the rest."""
        left = [{name: value for name, value in each.items() if PICTURES not in name} for each in self.figures]
        return replace(self, figures=tuple(left), pictures=False)


def read(path: Path) -> Record:
    """Return the record of a file."""
    data = json.loads(lzma.decompress(path.read_bytes()))
    assert data["format"] == FORMAT, f"{path}: expected a record of format {FORMAT!r}, got {data.get('format')!r}"
    return Record(
        tuple(Requested.of(each["request"]) for each in data["requests"]),
        tuple(each["figures"] for each in data["requests"]),
        data["pictures"],
        data["machine"] == machine(),
    )
