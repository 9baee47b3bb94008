"""What changes would give, in sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ipusim.app.explain.trial import TOO_LONG, WhatIf
from ipusim.app.explain.what_if import ASKED, HELP, Together
from ipusim.app.render.tables import Table
from ipusim.base.units import format_bytes, format_seconds

#: Changes that a table shows, and that a sentence names.
_MOST_ROWS: Final = 16
_NAMED: Final = 3
#: Changes without any help that a sentence lists.
_LISTED: Final = 6


def help_words(found: Sequence[WhatIf]) -> Iterator[str]:
    """Yield what would help most: the best change of each kind that helps, and which part of the time it shortens."""
    if any(each.change.kind == ASKED for each in found):
        yield from (each.instead for each in found if each.instead)
        return
    best = _best([each for each in found if not each.change.machine])
    if best:
        named = [f"{each.change.kind} ({each.change.words}) {each.gain:.1%}" for each in best[:_NAMED]]
        yield f"What would save most of the time per sample: {', '.join(named)}."
        causes = dict.fromkeys(each.cause for each in best[:_NAMED] if each.cause)
        if causes and best[0].cause:
            less = " and less ".join(f"{words}, now {share:.1%}" for words, share in causes)
            yield f"That is most of all less {less}."
        if any(each.change.idealised for each in best[:_NAMED]):
            yield "Point-to-point is an idealised machine, on which IPUs do not meet and each tensor goes by itself."
    else:
        yield "No single change that was tried makes it faster."
    hardware = _best([each for each in found if each.change.machine])
    if hardware:
        named = [f"{each.change.words} saves {each.gain:.1%}" for each in hardware[:_NAMED]]
        yield f"Of other hardware: {', '.join(named)}."
    if no_help := [each.change.words for each in found if not each.refusal and not each.too_large and each.gain < HELP]:
        more = f" and {len(no_help) - _LISTED} more" if len(no_help) > _LISTED else ""
        yield f"Tried, and no help: {', '.join(no_help[:_LISTED])}{more}."
    if too_long := [each.change.words for each in found if each.refusal == TOO_LONG]:
        yield f"Not tried, as it takes long: {', '.join(too_long)}. The option what tries it."


def _best(found: Sequence[WhatIf]) -> list[WhatIf]:
    """Return the best change of each kind that helps and fits, the best first."""
    helps = [each for each in found if each.gain >= HELP and not each.too_large]
    return [each for at, each in enumerate(helps) if each.change.kind not in {one.change.kind for one in helps[:at]}]


def what_if_tables(found: Sequence[WhatIf], pairs: Sequence[Together]) -> Iterator[Table]:
    """Yield what changes give, those that help or do not fit, and what two of them give at once."""
    asked = [each for each in found if each.change.kind == ASKED]
    shown = asked or [each for each in found if _told(each)]
    for title, rows in (
        ("What if" if asked else "What would help", [each for each in shown if not each.change.machine]),
        ("What other hardware would give", [each for each in shown if each.change.machine]),
    ):
        if rows:
            yield _table(title, rows[:_MOST_ROWS])
    if pairs:
        cells = [(pair.found.change.words, _saves(pair.found), f"{pair.sum:.1%}", _adds_up(pair)) for pair in pairs]
        yield Table("Two changes at once", ("changes", "save", "one by one", ""), tuple(cells))


def _adds_up(pair: Together) -> str:
    if pair.found.after is None:
        return f"cannot be: {pair.found.refusal}"
    return "" if pair.adds_up else "do not add up"


def _told(each: WhatIf) -> bool:
    return not each.refusal and each.gain >= HELP


def _table(title: str, rows: Sequence[WhatIf]) -> Table:
    cells = tuple((each.change.words, _saves(each), _after(each), _memory(each)) for each in rows)
    header = ("change", "saves", "per sample", "memory")
    return Table(f"{title}, of {format_seconds(float(rows[0].before))} per sample", header, cells)


def _saves(each: WhatIf) -> str:
    return "-" if each.after is None else f"{each.gain:.1%}"


def _after(each: WhatIf) -> str:
    return "-" if each.after is None else format_seconds(float(each.after))


def _memory(each: WhatIf) -> str:
    return f"{format_bytes(each.too_large)} too large" if each.too_large else "fits"


def what_if_dict(found: WhatIf) -> dict[str, Any]:
    """Return what a change gives as plain data for JSON."""
    return {
        "kind": found.change.kind,
        "change": found.change.words,
        "hardware": found.change.machine,
        "before_s": float(found.before),
        "after_s": None if found.after is None else float(found.after),
        "gain": found.gain,
        "excess_bytes": found.too_large,
        "shortens": None if found.cause is None else found.cause[0],
        "refusal": found.refusal,
        "instead": found.instead,
    }
