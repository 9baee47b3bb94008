"""Describe changes that free an IPU's memory, in tables and sentences."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from ipusim.api import analysis
from ipusim.app.explain.memory_candidates import ACTIVATIONS, REMOTE
from ipusim.app.explain.memory_moves import Move, Moves
from ipusim.app.render.tables import Table, text_of
from ipusim.base.units import format_bytes, format_seconds

#: Beyond this multiple of the unchanged time, a sentence points to ``ipusim suggest``.
_SLOW_MULTIPLE: Final = 1.25


def moves_table(found: Moves) -> Table:
    """Return a row for every change: freed bytes, peak of the fullest IPU, and time cost."""

    def row(change: str, ipu: int, plan: Move | Moves, freed: str, time: str, longer: str) -> dict[str, str]:
        return {
            "change": change,
            f"frees on IPU {found.ipu}": freed,
            "fullest IPU": f"IPU {ipu}: {format_bytes(plan.peak_bytes)}",
            **({} if found.sram_bytes is None else {"fits": str(plan.fits)}),
            "time per update": format_seconds(plan.period_s),
            "difference": time,
            "mainly due to": longer,
        }

    rows = [row("as it stands", found.ipu, found, "", "", "")]
    for move in found.moves:
        time = f"{move.period_s / found.period_s - 1:+.1%}" if found.period_s else "-"
        longer = ", ".join(words for words, _ in move.paid) or "-"
        rows.append(row(move.words, move.peak_ipu, move, format_bytes(move.freed_bytes), time, longer))
    return Table.of("Changes that take less memory", rows)


def move_words(found: Moves) -> list[str]:
    """Return sentences: the best change, other ways, savings in use, and changes without effect or refused."""
    sentences = [advice(found)]
    best = next(iter(found.moves), None)
    if not analysis.fits_or_unknown(found.fits) and (
        best is None or not analysis.fits_or_unknown(best.fits) or best.period_s > _SLOW_MULTIPLE * found.period_s
    ):
        sentences.append("`ipusim suggest` also searches other stages, schedules and numbers of IPUs.")
    if any(not move.changes.keys().isdisjoint((REMOTE, ACTIVATIONS)) for move in found.moves):
        sentences.append(
            "A change that moves tensors to other memory can free less than their size, because the peak then includes "
            "tensors on their way."
        )
    if found.already:
        sentences.append(f"Already in use: {', '.join(found.already)}.")
    if found.no_help:
        failures = (
            f"{words} ({rule.rstrip('.') or f'frees nothing on IPU {found.ipu}'})" for words, rule in found.no_help
        )
        sentences.append(f"Tried alone, but freed no memory: {'; '.join(failures)}.")
    return sentences


def advice(found: Moves) -> str:
    """Return a sentence: options of the fastest change that fits, or the lack of fitting changes.

    Changes that leave another IPU equally full are excluded.
    """
    lower = [move for move in found.moves if move.peak_bytes < found.peak_bytes]
    if not lower:
        return (
            "No option tried lowers the memory of the fullest IPU; another schedule may, and more stages on more "
            "IPUs would."
        )
    best, *alternatives = lower
    if found.sram_bytes is not None and not analysis.fits_or_unknown(best.fits):
        best = min(lower, key=lambda move: move.peak_bytes)
        return (
            "No option tried makes the program fit, alone or combined. The largest reduction, to "
            f"{format_bytes(best.peak_bytes)} on the fullest IPU: {best.words}, {options_of(best.changes)}"
        )
    options = options_of(best.changes)
    equals = [
        move.words for move in alternatives if analysis.fits_or_unknown(move.fits) and move.period_s == best.period_s
    ]
    as_fast = f" (as fast: {'; '.join(equals)})" if equals else ""
    first = (
        "The change with the least cost in time" if analysis.fits_or_unknown(found.fits) else "The fastest that fits"
    )
    return f"{first}: {best.words}{as_fast}, {options}"


def options_of(changes: Mapping[str, Any]) -> str:
    """Return changed options as options of the command line, quoted for a shell."""
    return " ".join(f"--set {shlex.quote(f'{name}={text_of(value)}')}" for name, value in changes.items())
