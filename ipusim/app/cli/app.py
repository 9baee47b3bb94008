"""Define the Typer application, and options shared by several commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ipusim.app.study.forms import FORMS, PRINTED
from ipusim.base.errors import OptionError
from ipusim.base.version import __version__

app = typer.Typer(
    name="ipusim",
    help="Simulate pipeline execution on Graphcore IPUs: real training in simulated time.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

#: Expected values of numbers, by the kind of pydantic's error and its limit.
_EXPECTED_NUMBERS: Final = {
    "greater_than_equal": "a number from {ge} up",
    "less_than_equal": "a number up to {le}",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
}

_SCENARIO: Final = typer.Argument(
    metavar="SCENARIO",
    help="a scenario in YAML, or measured stages in CSV with columns stage, forward [ms], backward [ms] and others",
)
ScenarioPath = Annotated[Path, _SCENARIO]
ScenarioIfAny = Annotated[Path | None, _SCENARIO]
RunOrScenario = Annotated[
    Path, typer.Argument(metavar="RUN", help="a run folder, or a scenario, whose times are then simulated")
]
CheckTimes = Annotated[
    bool,
    typer.Option(
        "--check-times",
        help="compute the times of passes, sends, weight updates and ends of executions a second time, from the order "
        "of spans instead of by event simulation, and compare",
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="number of parallel processes  [default: one for each core]")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="another value for a key, such as pipeline.repeat_count=2"),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="folder of the results  [default: reports/<name>]")]
Start = Annotated[int | None, typer.Option("--from", min=0, metavar="CYCLE", help="first cycle of the picture")]
End = Annotated[int | None, typer.Option("--to", min=1, metavar="CYCLE", help="last cycle of the picture")]
PhaseName = Annotated[
    str | None,
    typer.Option(
        "--phase",
        metavar="PHASE",
        help="show one phase: ramp-up, main, ramp-down or weight-update  [default: all phases]",
    ),
]
Execution = Annotated[
    int | None,
    typer.Option(
        "--execution",
        min=0,
        metavar="N",
        help="execution of the pipeline that the picture shows  "
        "[default: 0; if the run loses an IPU, the executions around that failure]",
    ),
]
Title = Annotated[
    str, typer.Option("--title", metavar="TEXT", help="headline of the picture  [default: the scenario's description]")
]
PageTitle = Annotated[
    str, typer.Option("--title", metavar="TEXT", help="headline of the page  [default: name, schedule and system]")
]
Size = Annotated[str, typer.Option("--size", metavar="WxHin", help="width and height of the picture, such as 6x3in")]
Theme = Annotated[str, typer.Option("--theme", metavar="NAME", help="colors: light, dark, or print, in greys")]


class Command(typer.core.TyperCommand):
    """Command whose refusals of numbers quote option, value and expected value; Typer leaves the value out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; raises OptionError for a wrong number, and Typer's errors for other mistakes."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for mistake in getattr(error.__cause__, "errors", list)()[:1]:
                if error.param is not None and (expected := _EXPECTED_NUMBERS.get(mistake["type"])):
                    expected = expected.format(**mistake.get("ctx", {}))
                    option = error.param.opts[-1].removeprefix("--")
                    raise OptionError(option, f"expected {expected}, got {mistake['input']!r}") from None
            raise


def output_option(default: str, files: str = ".json, .csv, .md, .parquet, .png, .svg or .pdf") -> Any:
    """Return the option --out of a command that writes a folder, or one file with an extension listed in ``files``."""
    text = f"folder of the results, or one file: {files}  [default: {default}]"
    return typer.Option("--out", metavar="PLACE", help=text)


def sync_modes(subject: str, default: str) -> Any:
    """Return the option --sync for several sync modes of ``subject``."""
    text = f"sync modes {subject}, separated by commas: lock_step, point_to_point  [default: {default}]"
    return typer.Option("--sync", metavar="MODES", help=text)


def printing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all output forms to a command.

    The command gets the extension of the chosen form as ``output_form``, empty for text on the terminal. At most one of
    these options, --verbose and --quiet may be set; otherwise the command raises OptionError.
    """
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def wrapper(**values: Any) -> None:
        forms = [name for name in PRINTED if values.pop(f"as_{name}")]
        names = [*forms, *(name for name in ("verbose", "quiet") if values.get(name))]
        if len(names) > 1:
            from ipusim.base.units import enumerated

            several = "both" if len(names) == 2 else "several"
            raise OptionError(names[0], f"expected one of {enumerated('{}' for _ in names)}, got {several}", *names)
        command(**values, output_form=PRINTED[forms[0]] if forms else "")

    form_options = [
        inspect.Parameter(
            f"as_{name}",
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, typer.Option(f"--{name}", help=f"print only {FORMS[ending].help}")],
        )
        for name, ending in PRINTED.items()
    ]
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "output_form"]
    wrapper.__signature__ = signature.replace(parameters=[*parameters, *form_options])  # type: ignore[attr-defined]
    return wrapper


def flag(option: str) -> str:
    """Return an option or argument in command-line spelling, for example ``--from``."""
    if option in ("scenario", "run", "schedule", "system"):
        return option.upper()
    return {"start": "--from", "end": "--to"}.get(option, f"--{option.replace('_', '-')}")


def split_names(option: str, text: str | None) -> list[str]:
    """Split names or numbers separated by commas; none for None. Raises OptionError for an empty entry."""
    entries = [] if text is None else [entry.strip() for entry in text.split(",")]
    if "" in entries:
        raise OptionError(option, f"expected entries separated by single commas, got an empty entry in {text!r}")
    return entries


def allow_only(context: typer.Context, input_name: str, *names: str) -> None:
    """Raise OptionError if the command line has an option other than ``input_name`` and ``names``.

    ``input_name`` is an option such as ``--perfetto`` that excludes others, or a description of the input. ``names``
    are further permitted options.
    """
    for name in options_on_command_line(context):
        if name not in (input_name.removeprefix("--"), *names):
            raise OptionError(name, f"expected either this option or {input_name}, got both")


def options_on_command_line(context: typer.Context) -> Iterator[str]:
    """Yield names of options and arguments on the command line, without dashes."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            yield (*parameter.opts, *parameter.secondary_opts)[-1].removeprefix("--")


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"ipusim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Simulate pipeline execution on Graphcore IPUs: real training in simulated time."""
