"""Writes schedules as torch.distributed.pipelining writes them, and what it makes of ours, under torch_schedules/.

Run by hand where torch is installed, which is no dependency of ipusim and never in its environment, with a folder of
CSVs of ``ipusim schedule NAME --stages 4 --count 8 --as torch``, of gis and gis_h with ``--mapping 0,1,2,3,0,1,2,3``:

    python -m venv /tmp/torch && /tmp/torch/bin/pip install "torch==2.13.0" numpy
    /tmp/torch/bin/python tests/golden/write_torch_schedules.py OURS

No process group is made: a schedule reads of its stages where they are, and no more, before it runs. Of interleaved
1F1B it writes a digest of the passes of every size as well, and none of a count that torch refuses.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch.distributed.pipelining import schedules

FOLDER = Path(__file__).with_name("torch_schedules")
#: Of each class its stages on a rank, ranks and micro-batches.
SIZES = {
    "GPipe": [(1, 4, 8)],
    "1F1B": [(1, 4, 8)],
    "LoopedBFS": [(2, 4, 8)],
    "Interleaved1F1B": [(2, 4, 8), (3, 2, 4), (2, 4, 3), (2, 4, 10), (3, 3, 8)],
    "InterleavedZeroBubble": [(1, 4, 8), (2, 4, 8)],
    "ZBVZeroBubble": [(2, 4, 8), (2, 4, 3), (2, 5, 13)],
    "DualPipeV": [(2, 4, 8), (2, 4, 10)],
}
#: Ranks, stages of a rank and micro-batches of which there are digests.
DIGESTS = (range(2, 17), range(2, 9), range(1, 41))


def stages(ranks: int, count: int, local: int = 1) -> list[Any]:
    """Return what a schedule reads of the stages of rank 0."""
    one = {"num_stages": count, "group_size": ranks, "group_rank": 0, "submod": None}
    return [SimpleNamespace(stage_index=index * ranks, **one) for index in range(local)]


def runtime(ranks: int, count: int, micro_batches: int) -> Any:
    """Return a schedule of no rule, which takes an order."""
    return schedules._PipelineScheduleRuntime(stages(ranks, count), micro_batches, loss_fn=len)


def write(name: str, local: int, ranks: int, micro_batches: int) -> None:
    """Write the passes of one of torch's schedules, and its default dump where it has one."""
    make, of = schedules.get_schedule_class(name), stages(ranks, ranks * local, local)
    path = FOLDER / f"{name}_{ranks * local}_{ranks}_{micro_batches}.csv"
    with_copies = path.with_stem(f"{path.stem}_copies")
    if issubclass(make, schedules.PipelineScheduleMulti):
        made = make(of, micro_batches, loss_fn=len)
        made._dump_csv(str(path), format="compute_only")
        made._dump_csv(str(with_copies))
        return
    made = make(of[0], micro_batches, loss_fn=len)
    with path.open("w", newline="") as file:  # as PipelineScheduleMulti does: a PipelineScheduleSingle has no _dump_csv
        csv.writer(file).writerows(made.pipeline_order.values())
    if name != "1F1B":  # of which the last rank runs forward passes 1 to 8, as torch has it, and so nothing of it loads
        passes = {rank: [one for one in row if one.is_compute_op] for rank, row in made.pipeline_order.items()}
        lowered = runtime(ranks, ranks * local, micro_batches)
        lowered._prepare_schedule_with_comms(passes)
        lowered._dump_csv(str(with_copies))


def load(path: Path) -> None:
    """Load a CSV of ours, as torch's runtime does before it runs it, and write it with copies."""
    text = path.read_text()
    count, micro_batches = (1 + max(map(int, re.findall(cell, text))) for cell in (r"(\d+)F", r"F(\d+)"))
    loaded = runtime(len(text.splitlines()), count, micro_batches)
    loaded._load_csv(str(path))
    loaded._dump_csv(str(FOLDER / f"ours_{path.name}"))


def digest(local: int, ranks: int, micro_batches: int) -> str:
    """Return a digest of the passes of interleaved 1F1B, a line a rank; of a count that torch refuses it is empty."""
    try:
        made = schedules.ScheduleInterleaved1F1B(stages(ranks, ranks * local, local), micro_batches, loss_fn=len)
    except ValueError:
        return ""
    rows = (made._calculate_single_rank_operations(rank) for rank in range(ranks))
    text = "\n".join(" ".join(str(one) for one in row if one is not None) for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_digests() -> None:
    """Write a line for each number of ranks and of stages of a rank: the digest of each count that torch has."""
    with FOLDER.with_name("interleaved_digests.csv").open("w", newline="") as file:
        for ranks, local in itertools.product(*DIGESTS[:2]):
            found = ((count, digest(local, ranks, count)) for count in DIGESTS[2])
            csv.writer(file).writerow([ranks, local, *(f"{count}:{text}" for count, text in found if text)])


if __name__ == "__main__":
    write_digests()
    for name, sizes in SIZES.items():
        for size in sizes:
            write(name, *size)
    for path in sorted(Path(sys.argv[1]).iterdir()):
        load(path)
