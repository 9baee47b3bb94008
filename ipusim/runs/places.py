"""Define positions in text files, and problems with their positions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Position in a file, or an override on the command line.

    Line and column count from 1.

    Attributes:
        source: file name as given, or option of the command line, such as ``--set path``.
        line, column: line and column; None for a whole file and for an override.
    """

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """Return ``file:line:column``, or only the source."""
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: overrides and whole files first, then by line and column."""
        return (self.line or 0, self.column or 0)


@dataclass(frozen=True)
class PlacedProblem:
    """Mistake in a scenario, with its position.

    Attributes:
        position: position of the value, or of a wrong key.
        key: path of the key in ``--set`` format, such as ``model.layers.1.units``; empty for a whole file.
        text: message with the expected value, the actual value, and advice.
    """

    position: Place
    key: str
    text: str

    def __str__(self) -> str:
        """Return the problem as one line, with line breaks removed."""
        adds_key = self.key and not self.position.source.endswith((f" {self.key}", f"--{self.key}"))
        line = f"{self.position}: {self.key}: {self.text}" if adds_key else f"{self.position}: {self.text}"
        return " ".join(line.split())
