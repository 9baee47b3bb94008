"""Read quantities with units from text such as ``1.325 GHz``, and format numbers for people.

Values inside ipusim are plain integers in base units (bytes, hertz, nanoseconds) or exact fractions; names carry the
unit (``_bytes``, ``_hz``, ``_cycles``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Final

from ipusim.base.errors import QuantityError
from ipusim.base.near_names import nearest

_DECIMAL: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

_BYTES: Final = {f"{prefix}B": Fraction(factor) for prefix, factor in {**_DECIMAL, **_BINARY}.items()}
_RATES: Final = {
    **{f"{unit}/s": factor for unit, factor in _BYTES.items()},
    **{f"{prefix}bit/s": Fraction(factor, 8) for prefix, factor in _DECIMAL.items()},
}
_HERTZ: Final = {f"{prefix}Hz": Fraction(factor) for prefix, factor in _DECIMAL.items()}
_SECONDS: Final = {
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
#: Units of times beyond a single run. Columns of measured stages have only the shorter units: there, ``forward min`` is
#: a minimum.
_LONG_TIMES: Final = {**_SECONDS, "min": Fraction(60), "h": Fraction(3600), "d": Fraction(86400)}
_SAMPLES: Final = {
    f"{prefix}{unit}".strip(): Fraction(factor)
    for unit in (" samples/s", "")
    for prefix, factor in _DECIMAL.items()
    if prefix or unit
}

#: Kinds of quantity: accepted units, and an example for messages.
UNITS: Final = {
    "bytes": (_BYTES, "624 KiB"),
    "bytes per second": (_RATES, "64 GB/s"),
    "hertz": (_HERTZ, "1.325 GHz"),
    "seconds": (_SECONDS, "3.7 us"),
    "time": (_LONG_TIMES, "3.1 h"),
    "samples per second": (_SAMPLES, "0.9 M samples/s"),
    "share": ({"%": Fraction(1, 100)}, "20 %"),
    "times": ({"x": Fraction(1)}, "1.5"),
    "cycles": ({"cycles": Fraction(1), "cycle": Fraction(1)}, "1200"),
}

#: Text in brackets.
_BRACKETS: Final = re.compile(r"\(.*?\)")


@dataclass(frozen=True)
class Unit:
    """Annotation of a number that is read with a unit of a given kind.

    Attributes:
        kind: a key of :data:`UNITS`.
    """

    kind: str


#: A number with a comma, followed by a unit.
_COMMA: Final = re.compile(r"\s*([+-]?\d{1,18}),(\d{1,18})(\s*[^\s\d,.][^,]*)?")
#: Digits between commas that separate thousands.
_THOUSAND: Final = 3
_NUMBER: Final = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)\s*([^\s\d_].*?)?\s*")


def parse_quantity(text: str, kind: str) -> Fraction:
    """Return the exact value of ``text`` in the base unit of ``kind``.

    Kinds are keys of :data:`UNITS`. A number without a unit is in the base unit. Raises QuantityError for a text
    without a number, or with a unit of another kind.

    >>> parse_quantity("624 KiB", "bytes")
    Fraction(638976, 1)
    """
    units, example = UNITS[kind]
    match = _NUMBER.fullmatch(text)
    near = with_point(text)
    if match is None or near:
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise QuantityError(f"expected a number of {kind} such as {example!r}, got {text!r}{hint}")
    number, unit = match.groups()
    if unit is None:
        return Fraction(number.replace("_", ""))
    if unit not in units:
        close = nearest(unit, units) if unit[0].isalpha() else None
        hint = f"; did you mean {number} {close}?" if close else ""
        choice = f"{kind} in one of {', '.join(units)}" if len(units) > 1 else f"a number, alone or with {min(units)},"
        if kind == "times" and unit == "%":
            hint = f"; {number} % longer is {float(1 + Fraction(number.replace('_', '')) / 100):g}"
        raise QuantityError(f"expected {choice} such as {example!r}, got {text!r}{hint}")
    return Fraction(number.replace("_", "")) * units[unit]


def with_point(text: str) -> list[str]:
    """Return the possible meanings of a number with a comma; empty for other text.

    These are a decimal number, and a number with thousands separators.

    >>> with_point("5,5 us"), with_point("1,024 KiB")
    (['5.5 us'], ['1.024 KiB', '1024 KiB'])
    """
    if (match := _COMMA.fullmatch(text)) is None:
        return []
    whole, part, unit = match[1], match[2], (match[3] or "").rstrip()
    is_grouped = len(part) == _THOUSAND and 0 < len(whole.lstrip("+-0")) <= _THOUSAND
    return [f"{whole}.{part}{unit}", *([f"{whole}{part}{unit}"] if is_grouped else [])]


def format_numbers(count: int) -> str:
    """Return the numbers of ``count`` items as words that continue "expected an IPU".

    >>> format_numbers(4), format_numbers(1)
    ('from 0 to 3', 'numbered 0')
    """
    return f"from 0 to {count - 1}" if count > 1 else "numbered 0"


def format_bytes(count: int) -> str:
    """Return ``count`` bytes for people, in binary multiples: ``format_bytes(638976) == '624 KiB'``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def format_rate(bytes_per_s: float) -> str:
    """Return a rate for people, in decimal multiples: ``format_rate(16e9) == '16 GB/s'``."""
    for factor, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= factor:
            return f"{bytes_per_s / factor:.4g} {unit}"
    return f"{bytes_per_s:.4g} B/s"


def format_throughput(samples_per_s: float) -> str:
    """Return a throughput for people: ``format_throughput(317612.3) == '317,612 samples/s'``."""
    return f"{format_figure(samples_per_s)} samples/s"


def throughput_text(samples_per_s: float | None) -> str:
    """Return a throughput for people; "no throughput" for 0 and None, as of a run that takes no time."""
    return format_throughput(samples_per_s) if samples_per_s else "no throughput"


#: Times of at least so many seconds are shown as whole numbers with separators; four digits would need powers of ten.
_WHOLE_S: Final = 10_000


def format_seconds(seconds: float) -> str:
    """Return a time for people with at least four digits: ``format_seconds(3.7e-6) == '3.7 us'``."""
    if abs(seconds) >= _WHOLE_S:
        return f"{seconds:,.0f} s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns" if seconds else "0 s"


def format_figure(number: float, digits: int = 3) -> str:
    """Return a number for people, with at least ``digits`` digits: ``format_figure(0.0412) == '0.0412'``."""
    return f"{number:,.0f}" if abs(number) >= 10 ** (digits - 1) else f"{number:.{digits}g}"


def enumerated(words: Iterable[object], most: int | None = None) -> str:
    """Return words as an English list, with a count in place of words beyond ``most``.

    Semicolons separate the words if a word contains a comma.

    >>> enumerated(["gpipe", "1f1b", "zbv"]), enumerated(["gpipe", "1f1b", "zbv"], 1)
    ('gpipe, 1f1b and zbv', 'gpipe and 2 more')
    >>> enumerated(["gpt2, 1f1b", "gpt2, zbv", "bert (4 s, 1 MiB)"])
    'gpt2, 1f1b; gpt2, zbv; and bert (4 s, 1 MiB)'
    """
    items = [*words]
    tail = items[most:] if most is not None else []
    *first, last = map(str, [*items[:most], f"{len(tail)} more"] if tail else items)
    if any(", " in _BRACKETS.sub("", word) for word in (*first, last)):
        return "; ".join([*first, f"and {last}" if first else last])
    return f"{', '.join(first)} and {last}" if first else last


def enumerated_rows(numbers: Iterable[int], name: Callable[[int], object] = str) -> str:
    """Return named ascending numbers as an English list.

    Three or more numbers in a row become "a to b".

    >>> enumerated_rows([0, 2, 3, 4], "abcde".__getitem__)
    'a and c to e'
    """
    words: list[object] = []
    for _, pairs in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        row = [name(number) for _, number in pairs]
        words += [f"{row[0]} to {row[-1]}"] if len(row) > 2 else row
    return enumerated(words)


def counted(number: int, noun: str, ending: str = "s") -> str:
    """Return a count with its noun; ``ending`` makes the plural.

    >>> counted(1, "point"), counted(0, "point"), counted(2000, "micro-batch", "es")
    ('1 point', '0 points', '2,000 micro-batches')
    """
    return f"{number:,} {noun}{ending * (number != 1)}"


def noun_with_numbers(noun: str, numbers: Sequence[int]) -> str:
    """Return a noun with ascending numbers.

    >>> noun_with_numbers("IPU", [3]), noun_with_numbers("IPU", [0, 2, 3, 4])
    ('IPU 3', 'IPUs 0 and 2 to 4')
    """
    return f"{noun}{'s' if len(numbers) > 1 else ''} {enumerated_rows(numbers)}"
