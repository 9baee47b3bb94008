"""Define the key ``rates`` of a scenario: rates by name or a file of rates.

Names and bounds come from the table of rates (:mod:`ipusim.hardware.rates`).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Discriminator, Field, Tag, create_model

from ipusim.hardware.rate import Rate
from ipusim.hardware.rates import DEFAULT_RATES, RATES, Rates
from ipusim.runs.request.fields import NameOfFile, Node, Quantity, expects

_NANOSECONDS_PER_SECOND: Final = 10**9


def _type(rate: Rate) -> Any:
    """Return the type of a rate's key: a quantity or a number."""
    range_text = f"{rate.show(rate.least)} to {rate.show(rate.most)}"
    match rate.unit:
        case "ns":
            least, most = rate.least / _NANOSECONDS_PER_SECOND, rate.most / _NANOSECONDS_PER_SECOND
            return Annotated[Fraction, Quantity("seconds", least, most, range_text, whole=False)]
        case "bytes/s":
            return Annotated[Fraction, Quantity("bytes per second", rate.least, rate.most, range_text, whole=False)]
        case "B":
            return Annotated[Fraction, Quantity("bytes", rate.least, rate.most, range_text, whole=False)]
        case "links":
            return Annotated[int, Field(ge=int(rate.least), le=int(rate.most))]
    return Annotated[float, Field(ge=float(rate.least), le=float(rate.most))]


def _description(rate: Rate) -> str:
    plausible = f", plausible {rate.plausible_text()}" if rate.plausible else ""
    return f"{rate.meaning}; default: {rate.show(rate.default)}{plausible}"


if TYPE_CHECKING:

    class RatesSpec(Node):
        """Rates that replace defaults, a key for each of :data:`ipusim.hardware.rates.RATES`."""

else:
    RatesSpec = create_model(
        "RatesSpec",
        __base__=Node,
        __doc__="Rates instead of the defaults.",
        **{rate.name: (_type(rate) | None, Field(default=None, description=_description(rate))) for rate in RATES},
    )
    RatesSpec.model_config["title"] = "rates"


def _rates_kind(value: object) -> str | None:
    return "<rates file>" if isinstance(value, str) else "<rates>" if isinstance(value, dict | RatesSpec) else None


#: Rates, or the name of a file with rates.
RatesOrFile = Annotated[
    Annotated[RatesSpec, Tag("<rates>")]
    | Annotated[
        str,
        Field(
            title="rates file",
            pattern=r"^[^\x00]{1,1024}\.ya?ml$",
            json_schema_extra=expects("a YAML file with a line for each rate, such as rates.yaml"),
        ),
        AfterValidator(NameOfFile),
        Tag("<rates file>"),
    ],
    Discriminator(_rates_kind),
]


def rates_of(spec: RatesSpec, file: str = "") -> Rates:
    """Return the rates of a scenario; ``file`` is the name of the rates file, empty without such a file."""
    values = {}
    for rate in RATES:
        value = getattr(spec, rate.name)
        if value is not None:
            exact = Fraction(str(value))  # as written: 0.1 is a tenth
            values[rate.attribute] = exact * _NANOSECONDS_PER_SECOND if rate.unit == "ns" else exact
    return replace(DEFAULT_RATES.with_values(**values), file=file)
