"""From the rates that a request names, itself or in a file, to their values."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ipusim.base.errors import FileError
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.rates_file import read_rates
from ipusim.runs.request.rates_spec import rates_of
from ipusim.runs.request.schema import Options

_RATES: Final[KeyPath] = ("rates",)


def resolve_rates(options: Options, folder: Path, findings: Findings) -> Rates:
    """Return the rates of the options; the defaults after noting what is wrong with the file that they name.

    The file's name is relative to ``folder``.
    """
    named = options.rates
    if not isinstance(named, str):
        return rates_of(named)
    try:
        return rates_of(read_rates(folder / named, named), named)
    except FileError as error:
        for line in str(error).splitlines():
            findings.add(_RATES, line)
    except OSError as error:
        findings.add(_RATES, f"expected a file that can be read, got {folder / named}: {error.strerror}")
    return DEFAULT_RATES
