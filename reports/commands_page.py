"""Page on all commands: arguments, options, meanings and defaults, taken from the command line itself."""

from __future__ import annotations

import re
from typing import Any, Final

import typer.main

from ipusim.app.cli import app

_HEAD: Final = """\
# Every command and option

Look up the effect of an option, and its default. `ipusim COMMAND --help` prints the same on a terminal.
`python -m reports` makes this page from the help texts.

Options stand anywhere behind the command. An option without a value is a switch, off by default. A dash means that
there is no default. `--set` takes any [key of a scenario](scenario.md). `-h` or `--help` prints the help of a command.

"""
_TABLE: Final = "| name | meaning | default |\n| --- | --- | --- |\n"
#: Part of a help text with a default or a bound, such as ``[default: 0]`` or ``[x>=1]``.
_BRACKET: Final = re.compile(r"  \[(default: )?((?:[^\[\]]|\[[^\]]*\])*)\]")
#: Parts of a help text that are code: text in backticks, options, paths with a part to fill in, keys with values.
_CODE: Final = re.compile(
    r"`[^`]+`|--[a-z][a-z-]*|[\w./-]*<[^>]+>[\w./-]*|reports/\w+|(?<![\w`])[\w.]+=\S*\w[)}*]?|\S*\*\S*(?<![,;])"
)


def commands_page() -> str:
    """Return the page as Markdown."""
    group: Any = typer.main.get_command(app)
    context = group.context_class(group, info_name="ipusim")
    commands = group.commands
    rows = "".join(f"| [`{name}`](#{name}) | {_escaped(entry.short_help)} |\n" for name, entry in commands.items())
    text = f"{_HEAD}| command | what it does |\n| --- | --- |\n{rows}"
    text += f"\n## ipusim itself\n\nOptions in place of a command.\n\n{_TABLE}"
    text += "".join(_row(entry, context) for entry in group.get_params(context))
    for name, command in commands.items():
        command_context = command.context_class(command, info_name=name, parent=context)
        usage = " ".join(map(_plain, command.collect_usage_pieces(command_context)))
        paragraphs = "\n\n".join(_escaped(" ".join(entry.split())) for entry in command.help.split("\n\n"))
        text += f"\n## {name}\n\n{paragraphs}\n\n`ipusim {name} {usage}`\n\n{_TABLE}"
        text += "".join(
            _row(entry, command_context) for entry in command.get_params(command_context) if entry.name != "help"
        )
    return text


def _row(parameter: Any, context: Any) -> str:
    """Return the table row of an argument or option; empty for a hidden option."""
    record = parameter.get_help_record(context)
    if record is None:
        return ""
    name, help_text = record
    name = re.sub(r" <.*>$", "", name.removeprefix(" / "))  # without the type of an argument
    brackets = _BRACKET.findall(help_text)
    meaning = _BRACKET.sub("", help_text)
    defaults: list[str] = []
    for is_default, content in brackets:
        for part in (content,) if is_default else content.split("; "):
            if not is_default and "x" in part:
                meaning += f" ({_bound(part)})"
            else:
                defaults.append(part)
    if "; x" in " ".join(defaults):  # a default and a bound in one pair of brackets
        value, _, bound = defaults.pop().partition("; ")
        meaning += f" ({_bound(bound)})"
        defaults.append(value)
    is_switch = getattr(parameter, "is_flag", False)
    if getattr(parameter, "multiple", False) and "may be repeated" not in meaning:
        meaning += " (may be repeated)"
    default = "; ".join(map(_escaped, defaults)) or ("off" if is_switch else "-")
    return f"| `{_plain(name)}` | {_escaped(meaning)} | {default} |\n"


def _bound(text: str) -> str:
    """Return a bound such as ``1<=x<=1024`` in words."""
    numbers = [f"{int(entry):,}" for entry in re.findall(r"\d+", text)]
    return f"from {numbers[0]} to {numbers[1]}" if len(numbers) == 2 else f"at least {numbers[0]}"


def _plain(usage: str) -> str:
    """Return a part of a usage line without the brackets that the library adds to those in our texts."""
    usage = re.sub(
        r"\{(.+?)(?:\.\.\.)?\}(?:\.\.\.)?$", lambda result: result[0].replace("{", "").replace("}", ""), usage
    )
    return usage.replace("[[", "[").replace("]]", "]").replace("......", "...")


def _escaped(text: str) -> str:
    """Return a help text as Markdown in a table, with code marked."""
    parts = _CODE.split(text)
    codes = [f"`{entry.strip('`')}`" for entry in _CODE.findall(text)]
    return "".join(part + code for part, code in zip(parts, [*codes, ""], strict=True)).replace("|", "\\|")
