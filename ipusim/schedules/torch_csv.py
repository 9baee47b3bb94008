"""Read and write Orders in torch.distributed.pipelining's CSV: a row per rank, a column per time-step.

A cell contains stage, pass and micro-batch, such as ``1F3``; idle cells are empty. Ranks become IPUs.
Cells follow ``_Action`` in torch/distributed/pipelining/schedules.py, rows follow ``_dump_csv``, and
``_load_csv`` with ``format="compute_only"`` reads them. Send and receive cells of ``format="compute_comms"`` are
checked and dropped with a note, and collectives of replicas are skipped. Rows may be Python lists, with brackets,
quotes and None for an empty cell. Cells may have torch 2.4's form, micro-batch before stage: ``F3_s1``.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipusim.base.csv_table import CsvLine, read_lines
from ipusim.base.errors import FileError, PlanError
from ipusim.base.files import resolve
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.pipeline.time_steps import earliest
from ipusim.schedules.features import Feature
from ipusim.schedules.schedule import Schedule
from ipusim.schedules.torch_copies import PlacedCopy, check_copies, copy_of, hang

#: Maximum file size, beyond any schedule for a simulated pod.
_MOST_BYTES: Final = 64 << 20
_PASS: Final = re.compile(r"([0-9]{1,9})([FBIW])([0-9]{1,9})")
_OLD_PASS: Final = re.compile(r"([FBIW])([0-9]{1,9})_s([0-9]{1,9})")
#: Collectives of replicas in a file of format="compute_comms", such as 0UNSHARD.
_COLLECTIVE: Final = re.compile(r"[0-9]{1,9}(REDUCE_GRAD|UNSHARD|RESHARD)")
_SKIP_NOTE: Final = "{name} has cells {words}, which are skipped: the collectives of replicas follow from the scenario."
_COPY_NOTE: Final = (
    "{name} has {number:,} cells that send and receive: each copy runs where passes need the tensor, "
    "not at the place of its cell."
)
_FROM_ONE_NOTE: Final = (
    "{name} numbers the forward passes of stage {stage} from 1, as torch's 1F1B does: read as from 0."
)
#: Other cells without a pass.
_NOT_A_PASS: Final = re.compile(r"\d+[A-Z_]{2,}\d*")
_COMPOSITE: Final = re.compile(r"\((.*)\)(\w*)")
_OVERLAP: Final = "OVERLAP_F_B"
_KINDS: Final = {kind.letter: kind for kind in (Pass.FORWARD, Pass.BACKWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)}
_LETTERS: Final = {kind: letter for letter, kind in _KINDS.items()}
_CELL_FORM: Final = "expected a pass such as 0F0, 0B0, 1I3 or 1W3, or an empty cell"


def write_torch_csv(order: Order) -> str:
    """Format an Order, with passes of one time-step each and free copies.

    Raises PlanError for passes and for copies of stages unknown to torch.
    """
    if order.shape.mirrored:
        raise PlanError("expected one copy of each stage, as in torch, got two")
    if order.shape.segments > 1:
        raise PlanError(f"expected whole micro-batches, as in torch, got {order.shape.segments} segments of each")
    ranks = max(order.shape.mapping) + 1
    rows: list[list[str]] = [[] for _ in range(ranks)]
    steps = earliest(order, one_at_a_time=True)
    for step, (ipu, kind, stage, micro_batch) in zip(steps.tolist(), order.passes.tolist(), strict=True):
        op = Op(Pass(kind), stage, micro_batch)
        if op.kind not in _LETTERS:
            raise PlanError(f"expected the passes F, B, I and W of torch, got {op}: leave out recomputation")
        row = rows[ipu]
        if step < len(row):  # joined to the previous pass
            row[step] = f"({row[step]};{_text(op)}){_OVERLAP}"
            continue
        row += [""] * (step - len(row))
        row.append(_text(op))
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def read_schedule(path: Path, name: str) -> Schedule:
    """Read a file's Order as a Schedule of a single shape; raises FileError with text starting with ``name``.

    The schedule runs point-to-point, or in lock-step.
    """
    copies: list[PlacedCopy] = []
    collectives: list[str] = []
    rows = _rows(path, name, copies, collectives)
    stages_from_one = _stages_from_one(rows)
    rows = [[tuple(_from_zero(op, stages_from_one) for op in cell) for cell in row] for row in rows]
    shape = _shape(rows, name)
    passes = {rank: [op for cell in row for op in cell] for rank, row in enumerate(rows)}
    check_copies(copies, list(passes.values()), shape.mapping, name)
    joins = frozenset(cell[0] for row in rows for cell in row if len(cell) > 1)
    places = {
        op: f"row {rank}, column {column}"
        for rank, row in enumerate(rows, start=1)
        for column, cell in enumerate(row, start=1)
        for op in cell
    }
    kinds = {op.kind for row in passes.values() for op in row}
    supports = {Feature.TRAINING if shape.training else Feature.INFERENCE, Feature.SEVERAL_IPUS, Feature.SEVERAL_STAGES}
    if Pass.INPUT_GRADIENT not in kinds and shape.training:
        supports.add(Feature.RECOMPUTE_INTERLEAVED)

    notes = [_FROM_ONE_NOTE.format(name=name, stage=stage) for stage in sorted(stages_from_one)]
    if copies:
        notes.append(_COPY_NOTE.format(name=name, number=len(copies)))
    if collectives:
        notes.append(_SKIP_NOTE.format(name=name, words=", ".join(dict.fromkeys(collectives))))

    def order(for_shape: PlanShape) -> Order:
        return Order.from_passes(path.name, for_shape, passes, joins, places)

    return Schedule(
        name,
        order,
        lambda _: shape.micro_batches,
        True,
        f"of {name}",
        frozenset(supports),
        (Sync.POINT_TO_POINT, Sync.LOCK_STEP),
        file_shape=shape,
        notes=tuple(notes),
    )


def hang_when_blocking(path: Path, name: str) -> str:
    """Describe how a file's ranks deadlock if each send waits for its receive; empty without a deadlock.

    Ranks run cells in row order. Copies missing in the file are placed next to their passes: a receive before the
    pass, a send after it. Raises FileError like :func:`read_schedule`.
    """
    copies: list[PlacedCopy] = []
    rows = _rows(path, name, copies, [])
    stages_from_one = _stages_from_one(rows)
    rows = [[tuple(_from_zero(op, stages_from_one) for op in cell) for cell in row] for row in rows]
    shape, passes = _shape(rows, name), [[op for cell in row for op in cell] for row in rows]
    check_copies(copies, passes, shape.mapping, name)
    return hang(copies, passes, shape.mapping)


def _rows(path: Path, name: str, copies: list[PlacedCopy], collectives: list[str]) -> list[list[tuple[Op, ...]]]:
    """Return the passes of the file's cells, and append to ``copies`` and ``collectives``.

    Raises FileError with row and column for the first invalid cell.
    """
    rows = []
    for number, line in enumerate(_lines(path, name)):
        row: list[tuple[Op, ...]] = []
        for column, cell in enumerate(line.cells, start=1):
            # Python prints lists with brackets and quotes, and None for idle cells.
            text = _OLD_PASS.sub(r"\3\1\2", cell.strip("[]'\" ")).removeprefix("None")
            position = f"{name!r}, row {number + 1}, column {column}"
            copy = copy_of(text)
            if copy is not None:
                copies.append((copy, number, sum(map(len, row)), position))
            elif (match := _COLLECTIVE.fullmatch(text)) is not None:
                collectives.append(match[1])
            row.append(() if copy is not None or match is not None else _cell(text, position))
        rows.append(row)
    return rows


def _lines(path: Path, name: str) -> Iterator[CsvLine]:
    """Yield the rows of the file; raises FileError for an unreadable file or invalid CSV."""
    try:
        path = resolve(path)
        yield from read_lines(path, _MOST_BYTES)
    except OSError as error:
        raise FileError(f"{name!r}: cannot read {path}: {error.strerror}") from None
    except FileError as error:
        raise FileError(f"{name!r}: {error}") from None
    except ValueError as error:  # a null character
        raise FileError(f"{name!r}: cannot read {path}: {error}") from None


def _cell(text: str, position: str) -> tuple[Op, ...]:
    """Return the passes of a cell: a single pass, two in a composite cell, or an empty tuple.

    Raises FileError with the expected format.
    """
    if not text:
        return ()
    composite = _COMPOSITE.fullmatch(text)
    parts = [text] if composite is None else [part.strip() for part in composite[1].split(";")]
    matches = [_PASS.fullmatch(part) for part in parts]
    ops = tuple(Op(_KINDS[match[2]], int(match[1]), int(match[3])) for match in matches if match is not None)
    kinds = [op.kind for op in ops]
    if composite is None and len(ops) == 1:
        return ops
    is_overlap = composite is not None and composite[2] == _OVERLAP and len(parts) == len(ops)
    if is_overlap and kinds == [Pass.FORWARD, Pass.BACKWARD]:
        return ops
    remedy = ""
    if _NOT_A_PASS.fullmatch(text):
        remedy = ': waits follow from the passes here; leave it out, as format="compute_only" does'
    elif composite is not None:
        remedy = f": a forward and a full backward pass run in one slot, as in (0F7;7B3){_OVERLAP}"
    excerpt = text if len(text) <= 60 else f"{text[:57]}..."
    raise FileError(f"{position}: {_CELL_FORM}, got {excerpt!r}{remedy}")


def _stages_from_one(rows: list[list[tuple[Op, ...]]]) -> set[int]:
    """Return the stages with forward passes numbered from 1, and backward passes from 0.

    torch, at least up to 2.14.1, writes the last rank of its Schedule1F1B like this, and cannot load the result.
    """
    numbers_of_stage: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for op in (op for row in rows for cell in row for op in cell if op.kind is not Pass.WEIGHT_GRADIENT):
        numbers_of_stage[op.stage][op.kind is not Pass.FORWARD].append(op.micro_batch)
    return {
        stage
        for stage, (forward, backward) in numbers_of_stage.items()
        if sorted(forward) == [*range(1, len(forward) + 1)] and sorted(backward) == [*range(len(forward))]
    }


def _from_zero(op: Op, stages_from_one: set[int]) -> Op:
    """Return a pass with its forward micro-batch number corrected for stages in ``stages_from_one``."""
    return (
        op._replace(micro_batch=op.micro_batch - 1) if op.kind is Pass.FORWARD and op.stage in stages_from_one else op
    )


def _shape(rows: list[list[tuple[Op, ...]]], name: str) -> PlanShape:
    """Return the shape of a file's Order.

    Raises FileError for a repeated pass, a stage on two ranks, and a missing stage.
    """
    homes: dict[int, int] = {}
    positions: dict[Op, str] = {}
    for rank, row in enumerate(rows):
        for column, op in ((column, op) for column, cell in enumerate(row, start=1) for op in cell):
            position = f"row {rank + 1}, column {column}"
            if op in positions:
                raise FileError(f"{name!r}, {position}: expected each pass once, got {_text(op)} as in {positions[op]}")
            positions[op] = position
            if homes.setdefault(op.stage, rank) != rank:
                first = homes[op.stage] + 1
                raise FileError(
                    f"{name!r}, {position}: expected stage {op.stage} in one row, got a second row besides row {first}"
                )
    if not positions:
        raise FileError(f"{name!r}: expected a row of passes such as 0F0 for each rank, got none")
    gap = next(stage for stage in range(len(homes) + 1) if stage not in homes)
    if gap < len(homes):
        raise FileError(f"{name!r}: expected passes of stages 0 to {max(homes)}, got none of stage {gap}")
    return PlanShape(
        mapping=tuple(homes[stage] for stage in range(len(homes))),
        micro_batches=max(op.micro_batch for op in positions) + 1,
        training=any(op.kind is not Pass.FORWARD for op in positions),
    )


def _text(op: Op) -> str:
    return f"{op.stage}{_LETTERS[op.kind]}{op.micro_batch}"
