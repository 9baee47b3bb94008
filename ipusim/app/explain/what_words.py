"""Describe the outcomes of changes in sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ipusim.api import Sync, analysis, pipelines
from ipusim.app.explain.changes import ANOTHER_SCHEDULE
from ipusim.app.explain.trial import NEEDS_MEMORY, TOO_LONG, WhatIf
from ipusim.app.explain.what_if import LEAST_GAIN, ON_REQUEST, ChangePair
from ipusim.app.render.tables import Table
from ipusim.base.units import enumerated, format_bytes, format_seconds

#: Maximum number of changes in a table; the best change per kind always has a row.
_MOST_ROWS: Final = 16
#: Maximum number of kinds named in a sentence, and of equally fast changes after the first.
_MOST_KINDS: Final = 3
#: Maximum number of named changes that help nothing, or were not tried.
_MOST_NAMED_CHANGES: Final = 6
#: Advice after changes that were not tried.
_TRY: Final = "`--what`, in Python `what`, tries changes by name."


def help_words(what_ifs: Sequence[WhatIf]) -> Iterator[str]:
    """Yield sentences about the best change of every kind, and about shortened parts of the time."""
    modes = list(Sync) if any(what_if.in_other_mode for what_if in what_ifs) else []
    note = pipelines.idealised(modes)
    if any(what_if.change.kind == ON_REQUEST for what_if in what_ifs):
        yield from (what_if.alternative_words for what_if in what_ifs if what_if.alternative_words)
        yield from [note] if note else []
        return
    best = _best([what_if for what_if in what_ifs if not what_if.change.is_hardware and not what_if.in_other_mode])
    if best:
        first = [group[0] for group in best[:_MOST_KINDS]]
        texts = [f"{group[0].change.kind} ({_words(group)}) {group[0].gain:.1%}" for group in best[:_MOST_KINDS]]
        yield f"Changes that save the most time per sample: {', '.join(texts)}."
        causes = {what_if.change.kind: what_if.cause for what_if in first if what_if.cause and what_if.cause[1] > 0}
        if first[0].change.kind in causes:
            clauses = [f"{kind} {_save(kind)} time mainly in {_part(*cause)}" for kind, cause in causes.items()]
            if len(first) == len(causes) and len(set(causes.values())) == 1:
                subject = "This change saves" if len(first) == 1 else "These changes save"
                clauses = [f"{subject} time mainly in {_part(*causes[first[0].change.kind])}"]
            text = "; ".join(clauses)
            yield f"{text[0].upper()}{text[1:]}."
    elif any(
        what_if.gain >= LEAST_GAIN
        for what_if in what_ifs
        if not what_if.change.is_hardware and not what_if.in_other_mode
    ):
        yield "No single change tried is faster and fits."
    else:
        yield "No single change tried is faster."
    if in_other_mode := _best([what_if for what_if in what_ifs if what_if.in_other_mode]):
        texts = [f"{_words(group)} {group[0].gain:.1%}" for group in in_other_mode[:_MOST_KINDS]]
        yield f"In the other sync mode, not comparable with this run: {', '.join(texts)}. {note}"
    hardware = _best([what_if for what_if in what_ifs if what_if.change.is_hardware])
    if hardware:
        texts = [f"{_words(group)} {group[0].gain:.1%}" for group in hardware[:_MOST_KINDS]]
        yield f"Other hardware that saves time per sample: {', '.join(texts)}."
    if no_help := [
        _name(what_if) for what_if in what_ifs if analysis.fits_or_unknown(what_if.fits) and what_if.gain < LEAST_GAIN
    ]:
        yield f"Also tried, but not faster: {enumerated(no_help, _MOST_NAMED_CHANGES)}."
    if refusals := [_name(what_if) for what_if in what_ifs if what_if.refusal == NEEDS_MEMORY]:
        text = "because stages would share an IPU, and the memory of stages is not known"
        yield f"Not tried, {text}: {enumerated(refusals, _MOST_NAMED_CHANGES)}. {_TRY}"
    if too_long := [_name(what_if) for what_if in what_ifs if what_if.refusal == TOO_LONG]:
        yield f"Not tried, because trials take long: {enumerated(too_long)}. {_TRY}"


def _best(what_ifs: Sequence[WhatIf]) -> list[list[WhatIf]]:
    """Return the first change that helps, by kind, with all ties; kinds keep the order of ``what_ifs``.

    Changes whose program does not fit are left out.
    """
    best: dict[str, list[WhatIf]] = {}
    for what_if in what_ifs:
        if what_if.gain >= LEAST_GAIN and analysis.fits_or_unknown(what_if.fits):
            group = best.setdefault(what_if.change.kind, [])
            if not group or what_if.after == group[0].after:
                group.append(what_if)
    return [*best.values()]


def _save(kind: str) -> str:
    """Return the verb for a kind of change, which is plural as in ``balanced stages``."""
    return "save" if kind.endswith("s") else "saves"


def _part(words: str, share: float) -> str:
    """Return a part of the time with its present share."""
    return f"{words} (now {share:.1%} of the time)"


def _name(what_if: WhatIf) -> str:
    """Return the words of a change, with the kind if it is a schedule: names such as ``single`` do not tell."""
    words = what_if.change.words
    return f"schedule {words}" if what_if.change.kind == ANOTHER_SCHEDULE else words


def _words(group: Sequence[WhatIf]) -> str:
    """Return the first of equally good changes, followed by the others."""
    first, *equals = [what_if.change.words for what_if in group]
    return f"{first}; as fast: {enumerated(equals, _MOST_KINDS)}" if equals else first


def what_if_tables(what_ifs: Sequence[WhatIf], pairs: Sequence[ChangePair]) -> Iterator[Table]:
    """Yield tables of changes that help, or of the requested changes, and of pairs of changes."""
    requests = [what_if for what_if in what_ifs if what_if.change.kind == ON_REQUEST]
    shown = requests or [what_if for what_if in what_ifs if not what_if.refusal and what_if.gain >= LEAST_GAIN]
    for title, rows in (
        (
            "What if" if requests else "Changes that help",
            [what_if for what_if in shown if not what_if.change.is_hardware and not what_if.in_other_mode],
        ),
        ("Results in the other sync mode", [what_if for what_if in shown if what_if.in_other_mode]),
        ("Effect of other hardware", [what_if for what_if in shown if what_if.change.is_hardware]),
    ):
        if rows:
            yield _table(title, rows)
    if pairs:
        cells = [(pair.joint.change.words, _saves(pair.joint), f"{pair.sum:.1%}", _adds_up(pair)) for pair in pairs]
        yield Table("Two changes at once", ("changes", "save", "one by one", ""), tuple(cells))


def _adds_up(pair: ChangePair) -> str:
    if pair.joint.after is None:
        return f"cannot be: {pair.joint.refusal}"
    return "" if pair.adds_up else "do not add up"


def _table(title: str, rows: Sequence[WhatIf]) -> Table:
    """Return a table of the best changes, and the number of omitted changes."""
    first = [group[0] for group in _best(rows)]
    more_rows = [what_if for what_if in rows if what_if not in first][: max(_MOST_ROWS - len(first), 0)]
    cells = [
        (
            _name(what_if),
            _saves(what_if),
            "-" if what_if.after is None else format_seconds(float(what_if.after)),
            _fits(what_if),
        )
        for what_if in rows
        if what_if in first or what_if in more_rows
    ]
    if len(cells) < len(rows):
        cells.append((f"{len(rows) - len(cells)} others", "", "", ""))
    header = ("change", "saves", "per sample", "memory")
    present = f"the present run takes {format_seconds(float(rows[0].before))} per sample"
    return Table(f"{title}; {present}", header, tuple(cells))


def _fits(what_if: WhatIf) -> str:
    """Tell whether a changed program fits, with excess bytes."""
    excess = f", by {format_bytes(what_if.excess_bytes)}" if what_if.excess_bytes else ""
    return f"{what_if.fits or '-'}{excess}"


def _saves(what_if: WhatIf) -> str:
    if what_if.after is None:
        return "-"
    return f"{what_if.gain:.1%}" if what_if.gain >= 0 else f"{-what_if.gain:.1%} more time"


def what_if_dict(what_if: WhatIf) -> dict[str, Any]:
    """Return the outcome of a change as plain data for JSON."""
    return {
        "kind": what_if.change.kind,
        "change": what_if.change.words,
        "hardware": what_if.change.is_hardware,
        "before_s": float(what_if.before),
        "after_s": None if what_if.after is None else float(what_if.after),
        "gain": what_if.gain,
        "fits": what_if.fits,
        "excess_bytes": what_if.excess_bytes,
        "shortens": None if what_if.cause is None else what_if.cause[0],
        "refusal": what_if.refusal,
        "instead": what_if.alternative_words,
    }
