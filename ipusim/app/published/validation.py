"""Validate schedules against publications: printed values, rankings and closed forms.

Four tallies are kept separate, because the facts are of different kinds: exact values, values within an error, rankings
of two values, and points of forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from textwrap import shorten
from typing import Any, Final

from ipusim.app.fidelity.spread import spread
from ipusim.app.published.figures import EXPLANATION, ComparedValue, held_values
from ipusim.app.published.forms import Form, read_forms
from ipusim.app.published.rows import DIGITS, FITTED, RANKING, PublishedValue, read_published
from ipusim.app.render.tables import Table
from ipusim.app.study.result import Result
from ipusim.base.csv_table import csv_bytes

#: Outcome of comparing two values: the printed order, no strict order, or the opposite order.
SAME, TIE, OTHERWISE = "as printed", "tied", "otherwise"
#: Figure whose values are checked by error and by ranking.
_RANKED_FIGURE: Final = "samples/s of a GPU"
#: Columns for rows of all tallies.
_COLUMNS: Final = ("kind", "published_in", "case", "figure", "printed", "found", "verdict")
#: Header of a table of values.
_VALUE_HEADER: Final = ("published in", "case", "inputs", "figure", "printed", "found", "verdict", "assumed", "source")


@dataclass(frozen=True)
class Ranking:
    """Values of one case and figure in descending printed order, ranked in pairs."""

    values: tuple[ComparedValue, ...]

    @property
    def row(self) -> PublishedValue:
        """Row of the first value, with the table, group and figure of all values."""
        return self.values[0].row

    @cached_property
    def pairs(self) -> tuple[tuple[str, str, str], ...]:
        """Names of every two values, with the outcome of their comparison."""
        pairs = combinations(self.values, 2)
        return tuple((first.row.name, second.row.name, _outcome(first, second)) for first, second in pairs)


def _outcome(first: ComparedValue, second: ComparedValue) -> str:
    printed_gap, computed_gap = first.row.value - second.row.value, first.number - second.number
    if not printed_gap or not computed_gap:
        return TIE
    return SAME if (printed_gap > 0) == (computed_gap > 0) else OTHERWISE


@dataclass(frozen=True)
class ScheduleValidation(Result):
    """Published and simulated figures of schedules.

    Attributes:
        values: every printed value with its computed counterpart.
        forms: every closed form, with values of runs at its points.
    """

    values: tuple[ComparedValue, ...]
    forms: tuple[Form, ...]

    names = ("digits.csv", "errors.csv", "rankings.csv", "forms.csv")

    @property
    def digits(self) -> list[ComparedValue]:
        """Values checked for equality of every printed digit."""
        return [value for value in self.values if value.row.check == DIGITS]

    @property
    def explained_values(self) -> list[ComparedValue]:
        """Values explained by another rule than the schedule."""
        return [value for value in self.values if value.explained_value is not None]

    @property
    def near(self) -> list[ComparedValue]:
        """Values checked against an allowed error."""
        return [value for value in self.values if value.row.tolerance is not None]

    @cached_property
    def rankings(self) -> tuple[Ranking, ...]:
        """Values checked by ranking, by table, case and figure."""
        groups: dict[tuple[str, str, str], list[ComparedValue]] = {}
        for value in self.values:
            row = value.row
            if row.check == RANKING or row.figure == _RANKED_FIGURE:
                groups.setdefault((row.table, row.group, row.figure), []).append(value)
        return tuple(Ranking(tuple(sorted(members, key=lambda value: -value.row.value))) for members in groups.values())

    def outcomes(self, table: str = "", figure: str = "") -> Counter[str]:
        """Count pairs by outcome, optionally of one table and figure only."""
        rows = [(ranking, ranking.row) for ranking in self.rankings]
        selection = (
            ranking_of_row for ranking_of_row, row in rows if table in ("", row.table) and figure in ("", row.figure)
        )
        return Counter(outcome for ranking in selection for _, _, outcome in ranking.pairs)

    def failures(self) -> list[str]:
        """Return a line per failing value or form."""
        values = [
            f"{value.row.table}, {value.row.group}, {value.row.name}: expected {value.row.printed} "
            f"({value.row.check}), got {value.text}"
            for value in self.values
            if not value.holds
        ]
        forms = [
            f"{form.schedule}, {form.figure}: expected {form.form} at {len(form.points)} points, got this value at "
            f"{form.matches}"
            for form in self.forms
            if form.right != form.values
        ]
        return values + forms

    def verdicts(self) -> Iterator[str]:
        """Yield the four tallies, a sentence each."""
        correct_values = [value for value in self.digits if value.holds]
        exact = sum(value.is_exact for value in correct_values)
        yield (
            f"Printed values exact or rounded: {len(correct_values)} of {len(self.digits)} ({exact} exact); "
            f"{len(self.explained_values)} more follow from another rule than their schedule, and are explained."
        )
        tables: dict[str, list[float]] = {}
        for value in self.near:
            if value.row.check.endswith("%"):
                tables.setdefault(value.row.table, []).append(float(value.error))
        spreads = [(table, *spread(errors_of_table)) for table, errors_of_table in tables.items()]
        errors = [
            f"{number} of {total} {mean} off on average, {worst} at worst" for total, number, mean, worst in spreads
        ]
        close_count = sum(value.holds for value in self.near)
        yield f"Printed values within a stated error: {close_count} of {len(self.near)}; {'; '.join(errors)}."
        outcomes = self.outcomes()
        yield (
            f"Rankings: {outcomes[SAME]} of {outcomes.total()} pairs as printed, {outcomes[TIE]} tied, "
            f"{outcomes[OTHERWISE]} reversed."
        )
        valid_forms = sum(form.matches == len(form.points) for form in self.forms)
        points = sum(len(form.points) for form in self.forms)
        yield f"Forms: {valid_forms} of {len(self.forms)} hold at every point; {points} points in total."
        yield (
            f"The {len(self.values)} printed values, the pairs and the points are of different kinds, and have no "
            "common total."
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the table of every tally."""
        fit_values = [value for value in self.values if value.row.check == FITTED]
        values = {
            "Exact or rounded": self.digits + self.explained_values,
            "Within a stated error": self.near + fit_values,
        }
        rankings = ("published in", "case", "figure", "printed", "inputs", SAME, "not so", "assumed", "source")
        forms = ("schedule", "figure", "form", "points", "met", "p x v x m", "f-i-w", "more", "source")
        return (
            *(Table(title, _VALUE_HEADER, tuple(map(_value_row, rows))) for title, rows in values.items()),
            Table("Rankings, the largest printed value first", rankings, tuple(map(_ranking_row, self.rankings))),
            Table("Forms", forms, tuple(map(_form_row, self.forms))),
        )

    def parts(self) -> Iterator[tuple[Table, tuple[str, ...]]]:
        """Yield a table per tally with notes."""
        notes = (
            (
                "Exact: the simulated value equals the printed one; rounded: within the last digit. Explained: the "
                "schedule gives the simulated value, and the printed digits follow from another rule, named in the "
                "notes.",
                *([EXPLANATION] if self.explained_values else []),
            ),
            ("Fitted values are not counted, because they determine constants of a model.",),
            tuple(self._ranking_words()),
            (
                "p devices, v stages on each, m micro-batches, k segments of each; f, i, w cycles of a stage's forward "
                "pass and of both halves of its backward pass, c of a copy, which occupies no device. A bubble is idle "
                "time of the makespan, or of the cost: the longest time from a device's first pass to its own last. A "
                "peak is of stages' micro-batches, or segments, from the forward pass to the end of the backward pass.",
            ),
        )
        for table, words in zip(self.tables(), notes, strict=True):
            part, remarks = _with_notes(table) if "assumed" in table.header else (table, [])
            yield part, (*words, *remarks)

    def printout(self) -> Iterator[str | Table]:
        """Yield the four tallies, then a table per tally with notes."""
        yield from self.verdicts()
        yield ""
        for table, words in self.parts():
            yield table
            yield from words
            yield ""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per value, per pair of a ranking, and per form: printed value, found value, and verdict.

        Rows of kind ``pair`` have no values; see rows of kind ``value``.
        """
        rows: list[tuple[object, ...]] = []
        for value in self.values:
            row = value.row
            case = row.table, f"{row.group}, {row.name}", row.figure
            rows.append(("value", *case, row.printed, value.text, value.verdict))
        for ranking in self.rankings:
            row = ranking.row
            for first, second, outcome in ranking.pairs:
                case = row.table, f"{row.group}, {first} and {second}", row.figure
                rows.append(("pair", *case, None, None, outcome))
        for form in self.forms:
            verdict = f"{form.matches} of {len(form.points)} points"
            rows.append(("form", form.source, form.schedule, form.figure, form.form, None, verdict))
        return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]

    def data(self) -> dict[str, Any]:
        """Return the tallies, a line for every failure, and the rows."""
        return {"verdicts": [*self.verdicts()], "failures": self.failures(), "rows": self.rows()}

    def _ranking_words(self) -> Iterator[str]:
        """Yield the ranking results of every table and figure in words."""
        yield (
            "If inputs are missing, or a measurement has parts that no schedule has, only the ranking can be compared."
        )
        rows = (ranking.row for ranking in self.rankings)
        for table, figure in dict.fromkeys((row.table, row.figure) for row in rows):
            counts = self.outcomes(table, figure)
            yield f"{table}, {figure}: {counts[SAME]} of {counts.total()} as printed, {counts[TIE]} tied."

    def folder_files(self) -> dict[str, bytes]:
        """Return the content of every file, one file per tally."""
        contents = (csv_bytes([table.header, *table.rows]) for table in self.tables())
        return dict(zip(self.names, contents, strict=True))


def validated_schedules() -> ScheduleValidation:
    """Validate schedules against the package's published values and forms."""
    return ScheduleValidation(held_values(read_published()), read_forms())


def _numbers(numbers: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in numbers.items())


def _with_notes(table: Table) -> tuple[Table, list[str]]:
    """Move a table's last two columns to numbered notes."""
    notes = list(dict.fromkeys(row[-2:] for row in table.rows))
    rows = tuple((*row[:-2], str(1 + notes.index(row[-2:]))) for row in table.rows)
    words = [f"Note {number}: {source}; assumed: {assumed}." for number, (assumed, source) in enumerate(notes, 1)]
    return Table(table.title, (*table.header[:-2], "note"), rows), words


def _short(text: str) -> str:
    return shorten(text, 30, placeholder=" ...")


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys("; ".join(texts).split("; ")))


def _value_row(value: ComparedValue) -> tuple[str, ...]:
    row = value.row
    inputs = ": ".join(filter(None, (row.schedule, _numbers(row.inputs))))
    case = (row.table, f"{row.group}, {row.name}", inputs, row.figure)
    return (*case, _short(row.printed), _short(value.text), value.verdict, row.assumed, row.source)


def _ranking_row(ranking: Ranking) -> tuple[str, ...]:
    rows = [value.row for value in ranking.values]
    first = ranking.row
    inputs = {key: value for key, value in first.inputs.items() if all(row.inputs.get(key) == value for row in rows)}
    printed_text = ", ".join(f"{row.name} {row.printed}" for row in rows)
    exceptions = [
        f"{first_name} and {second_name} {outcome}"
        for first_name, second_name, outcome in ranking.pairs
        if outcome != SAME
    ]
    agreement = f"{len(ranking.pairs) - len(exceptions)} of {len(ranking.pairs)}"
    notes = _distinct(row.assumed for row in rows), _distinct(row.source for row in rows)
    exceptions_text = "; ".join(exceptions)
    return (first.table, first.group, first.figure, printed_text, _numbers(inputs), agreement, exceptions_text, *notes)


def _form_row(form: Form) -> tuple[str, ...]:
    counts = str(len(form.points)), str(form.matches)
    return (form.schedule, form.figure, form.form, *counts, form.sizes, form.times, form.more, form.source)
