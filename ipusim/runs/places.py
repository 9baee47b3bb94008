"""Positions in text files, and problems with their positions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A position in a file (line and column count from 1), or an override on the command line.

    Attributes:
        source: the file as it was named, or the option of the command line, as ``--set path``.
        line, column: None for a whole file and for an override.
    """

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """Return ``file:line:column``, or the source alone."""
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: overrides and whole files first, then by line and column."""
        return (self.line or 0, self.column or 0)


@dataclass(frozen=True)
class PlacedProblem:
    """One mistake in a scenario, with its position.

    Attributes:
        position: position of the value, or of the key when the key itself is wrong.
        key: the key's path as ``--set`` takes it, such as ``model.layers.1.units``; empty for a whole file.
        text: the message: the expected and the actual value, and what to do.
    """

    position: Place
    key: str
    text: str

    def __str__(self) -> str:
        """Return the problem as one line, without the line breaks of a key or text."""
        named = self.key and not self.position.source.endswith(f" {self.key}")
        line = f"{self.position}: {self.key}: {self.text}" if named else f"{self.position}: {self.text}"
        return " ".join(line.split())
