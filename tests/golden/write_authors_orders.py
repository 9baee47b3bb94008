"""Writes digests of V-Half, V-Min and ZB-V of few micro-batches, as their authors' own code has them.

Run by hand with a checkout of sail-sg/zero-bubble-pipeline-parallelism (written with that of commit 39f2c186), of which
nothing is installed and the modules of two schedulers alone are run; all passes take one time, and copies none:

    python tests/golden/write_authors_orders.py CHECKOUT
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

FILE = Path(__file__).with_name("authors_orders.csv")
PACKAGE = "megatron.core.pipeline_parallel.zerobubble.scheduler"
#: Forward, input and weight passes, and a copy.
TIMES = (1, 1, 1, 0)
#: What a forward pass keeps, and the others let go of.
BYTES = (2, -1, -1)
IPUS = {"v_half": range(2, 11), "v_min": range(2, 11), "zbv": range(2, 17)}


def schedulers(checkout: Path) -> tuple[Any, Any]:
    """Return the modules of the schedulers, without what else their packages import."""
    parts = PACKAGE.split(".")
    for end in range(1, len(parts) + 1):
        package = sys.modules[".".join(parts[:end])] = ModuleType(".".join(parts[:end]))
        package.__path__ = [str(checkout.joinpath(*parts[:end]))]
    return import_module(f"{PACKAGE}.zbv_greedy"), import_module(f"{PACKAGE}.zbv")


def order_of(name: str, ipus: int, count: int, modules: tuple[Any, Any]) -> list[list[str]]:
    """Return of each IPU its passes: kind, chunk and micro-batch."""
    greedy, search = modules
    if name == "zbv":
        graph = search.PipelineGraph(ipus, count, *TIMES, *BYTES)
    else:
        graph = greedy.PipelineGraph(ipus, count, name.removeprefix("v_"), *TIMES)
    with contextlib.redirect_stdout(io.StringIO()):
        rows = graph.create_schedule(SimpleNamespace(max_chunks=2, n_stages=ipus))
    return [[f"{node.type}{node.chunk}.{node.microbatch}" for node in row] for row in rows]


def digest(rows: list[list[str]]) -> str:
    """Return a digest of passes, a line an IPU."""
    return hashlib.sha256("\n".join(map(" ".join, rows)).encode()).hexdigest()[:12]


if __name__ == "__main__":
    with FILE.open("w", newline="") as file:
        for name, sizes in IPUS.items():
            for ipus in sizes:
                counts = range(1, 2 * ipus - 1 if name == "zbv" else ipus + 4)
                found = (digest(order_of(name, ipus, count, schedulers(Path(sys.argv[1])))) for count in counts)
                csv.writer(file).writerow([name, ipus, *found])
