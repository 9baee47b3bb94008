"""Schedules as torch.distributed.pipelining lays them out and writes them, rank by rank, idle cells included.

The orders are those of torch/distributed/pipelining/schedules.py (ScheduleGPipe, Schedule1F1B,
ScheduleInterleaved1F1B, ScheduleZBVZeroBubble), and the text that of its ``_dump_csv``: Python's csv.writer. Both were
compared with torch 2.15.0 and have its bytes, but for the last rank of 1F1B, whose forward passes torch prints one
micro-batch too high.
"""

from __future__ import annotations

import csv
import io

Rows = list[list[str]]
IDLE = ""


def text_of(rows: Rows) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


def gpipe(ranks: int, count: int) -> Rows:
    rows = []
    for rank in range(ranks):
        forward, backward = ([f"{rank}{kind}{each}" for each in range(count)] for kind in "FB")
        rows.append([*[IDLE] * rank, *forward, *[IDLE] * (3 * (ranks - 1 - rank)), *backward])
    return rows


def one_forward_one_backward(ranks: int, count: int) -> Rows:
    rows = []
    for rank in range(ranks):
        ahead = ranks - 1 - rank
        row = [IDLE] * rank + [f"{rank}F{each}" for each in range(ahead)] + [IDLE] * (2 * ahead)
        for each in range(count - ahead):
            row += [f"{rank}F{ahead + each}", f"{rank}B{each}"]
        for each in range(count - ahead, count):
            row += [IDLE, f"{rank}B{each}"]
        rows.append(row)
    return rows


def interleaved_1f1b(ranks: int, chunks: int, count: int) -> Rows:
    per_round = count // max(1, count // ranks)
    total = chunks * count
    rows = []
    for rank in range(ranks):
        ahead = min((chunks - 1) * per_round + 2 * (ranks - 1 - rank), total)
        done: dict[str, int] = {}

        def cell(turn: int, kind: str, rank: int = rank, done: dict[str, int] = done) -> str:
            chunk = turn // per_round % chunks
            chunk = chunk if kind == "F" else chunks - 1 - chunk
            what = f"{chunk * ranks + rank}{kind}"
            done[what] = done.get(what, -1) + 1
            return f"{what}{done[what]}"

        row = [IDLE] * rank + [cell(turn, "F") for turn in range(ahead)]
        row += [IDLE] * (chunks * ranks + 2 * (ranks - 1 - rank) - (ahead + rank))
        for turn in range(total - ahead):
            row += [cell(ahead + turn, "F"), cell(turn, "B")]
        for turn in range(total - ahead, total):
            row += [IDLE, cell(turn, "B")]
        rows.append(row)
    return rows


def zbv(ranks: int, count: int) -> Rows:
    """Two stages a rank, those of rank 0 the first and the last; fewer micro-batches leave idle cells behind."""
    full = max(2 * ranks - 1, count)
    rows = []
    for rank in range(ranks):
        down, up = rank, 2 * ranks - 1 - rank
        done = dict.fromkeys([(stage, kind) for stage in (down, up) for kind in "FIW"], 0)
        row = [IDLE] * rank

        def put(stage: int, kinds: str, done: dict[tuple[int, str], int] = done, row: list[str] = row) -> None:
            for kind in kinds:
                row.append(f"{stage}{kind}{done[stage, kind]}" if done[stage, kind] < count else IDLE)
                done[stage, kind] += 1

        for _ in range(2 * (ranks - rank) - 1):
            put(down, "F")
        for _ in range(rank):
            put(up, "F")
            put(down, "F")
        for _ in range(ranks - rank):
            put(up, "FIW")
        while done[up, "F"] < done[down, "F"] or done[down, "F"] < full:
            if done[down, "F"] < full:
                put(down, "F")
            put(down, "IW")
            put(up, "FIW")
        for _ in range(rank):
            put(down, "I")
            put(up, "I")
        for _ in range(ranks - rank):
            put(down, "IW")
        for stage in (up, down):
            while done[stage, "W"] < done[stage, "I"]:
                put(stage, "W")
        rows.append(row)
    return rows
