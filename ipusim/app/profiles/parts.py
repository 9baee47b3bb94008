"""Join partial spans of a profile into one span per pass."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from ipusim.app.profiles.spans import Span
from ipusim.base.errors import FileError
from ipusim.base.units import enumerated


def join_parts(spans: Sequence[Span], parts: int | None, notes: list[str]) -> Iterator[Span]:
    """Yield the spans of a rank, joining the parts of every pass.

    A pass begins at its first part. With ``parts``, it ends after this number of spans, otherwise at the next span of
    another pass. Its length is the sum of the parts.

    Raises FileError with the reason, if passes have different numbers of a part.
    """
    groups: dict[tuple[str, str], list[list[Span]]] = defaultdict(list)
    last: tuple[str, str, int | None] | None = None
    for span in sorted(spans, key=lambda span: span.start_us or 0):
        key = (span.activity, span.stage, span.micro_batch)
        if not span.is_part:
            yield span
        else:
            passes = groups[key[:2]]
            if not passes or (len(passes[-1]) == parts if parts else key != last):
                passes.append([])
            passes[-1].append(span)
        last = key
    for (kind, stage), passes in groups.items():
        of_stage = f" of stage {stage}" if stage else ""
        counts = [Counter(span.kind for span in parts_of_pass) for parts_of_pass in passes]
        if other_count := next((count for count in counts if count != counts[0]), None):
            raise FileError(
                f"expected the same parts in every {kind} pass{of_stage}, got {_list_parts(counts[0])} in the first "
                f"and {_list_parts(other_count)} in another: set the number of spans of a pass with --parts-per-pass N"
            )
        notes.append(f"A {kind} pass{of_stage} is the sum of {_list_parts(counts[0])}.")
        for spans_of_pass in passes:
            yield replace(
                spans_of_pass[0],
                us=sum((span.us for span in spans_of_pass), Fraction(0)),
                subtracted_us=sum((span.subtracted_us for span in spans_of_pass), Fraction(0)),
                recomputed_us=sum((span.recomputed_us for span in spans_of_pass), Fraction(0)),
            )


def refuse_different_names(spans: Sequence[Span]) -> None:
    """Refuse different names for a pass of a stage, unless the names are parts. Raises FileError with the reason."""
    names_of: dict[tuple[str, str, int], dict[str, None]] = defaultdict(dict)
    for span in spans:
        if not span.is_part and span.kind:
            names_of[span.activity, span.stage, span.rank][span.kind] = None
    for (activity, stage, rank), names in names_of.items():
        if activity != "update" and len(names) > 1:
            texts = enumerated(names, 6)
            parts = shlex.quote(f"{activity}={'+'.join(names)}")
            raise FileError(
                f"expected spans of one name for {activity} passes{f' of stage {stage}' if stage else ''}, got {texts} "
                f"on rank {rank}: name the pass with --name {activity}=NAME, or its parts with --name {parts}"
            )


def _list_parts(count: Counter[str]) -> str:
    return enumerated((f"{number} {kind}" for kind, number in sorted(count.items())), 6)
