"""Which names in a trace or log are which pass of which stage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ipusim.api import runs
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean

#: What is measured of a stage, by the keys of a scenario's stages.
PASSES: Final = ("forward", "backward", "backward_input", "backward_weights", "update")
UPDATE: Final = PASSES[-1]
#: Names that record_function gets from torch.distributed.pipelining: "PP:" with an action (stage, kind, micro-batch) in
#: versions whose schedules have ScheduleDualPipeV, "Forward" and "Backward" with a micro-batch in ScheduleGPipe from
#: torch 2.4 on; and that torch.optim gives a step.
TORCH: Final = (
    "forward=PP:{stage}F*",
    "backward=PP:{stage}B*",
    "backward_input=PP:{stage}I*",
    "backward_weights=PP:{stage}W*",
    "forward=Forward *",
    "backward=Backward *",
    "update=Optimizer.step#*",
)
#: Timers of Megatron-LM.
MEGATRON: Final = ("forward=forward-compute", "backward=backward-compute", "update=optimizer")

_RULE: Final = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_-]{0,63})\.)?([A-Za-z _-]+)=(.+)", re.DOTALL)
#: The parts of a pattern that stand for other text.
_PARTS: Final = re.compile(r"(\*|\{stage\})")
#: Characters of a name that is looked at.
_LONGEST: Final = 1000


@dataclass(frozen=True)
class Called:
    """The pass, or the update, that a name stands for.

    Attributes:
        what: a pass or the update, one of PASSES.
        stage: the stage's name, or its number as text; empty where the name does not say.
    """

    what: str
    stage: str


@dataclass(frozen=True)
class Rule:
    """The passes, or the update, that names of a pattern stand for.

    Attributes:
        what: a pass or the update.
        stage: whose, by its name; empty where the pattern has a ``{stage}``, or the rank says.
        pattern: a name, with ``*`` for any text and ``{stage}`` for a stage's number.
    """

    what: str
    stage: str
    pattern: str

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        parts = {"*": ".*", "{stage}": "([0-9]{1,4})"}
        return re.compile("".join(parts.get(part, re.escape(part)) for part in _PARTS.split(self.pattern)), re.DOTALL)

    def called(self, name: str) -> Called | None:
        """Return the pass of ``name``; None where it does not fit the pattern."""
        fits = self._expression.fullmatch(name)
        if fits is None:
            return None
        return Called(self.what, self.stage or (str(int(fits[1])) if fits.re.groups else ""))


class Names:
    """The rules of a trace, of which the first that fits a name says what it is."""

    def __init__(self, own: Sequence[str], usual: Sequence[str]) -> None:
        """Take ``own`` rules, written ``PASS=NAME`` or ``STAGE.PASS=NAME``, and the usual ones of other passes.

        Raises OptionError for a rule that is none.
        """
        rules = [*map(_rule, own)]
        taken = {rule.what for rule in rules}
        self.rules = (*rules, *(rule for rule in map(_rule, usual) if rule.what not in taken))
        self._known: dict[str, Called | None] = {}

    def __getitem__(self, name: str) -> Called | None:
        """Return the pass of ``name``; None for names of no pass."""
        if name not in self._known:
            if len(self._known) > 1 << 16:
                self._known.clear()
            short = name if len(name) <= _LONGEST else ""
            self._known[name] = next(filter(None, (rule.called(short) for rule in self.rules)), None)
        return self._known[name]

    def __str__(self) -> str:
        """Return the patterns, for messages."""
        return ", ".join(rule.pattern for rule in self.rules)


def _rule(text: str) -> Rule:
    written = _RULE.fullmatch(text)
    if written is None:
        expected = "expected PASS=NAME or STAGE.PASS=NAME, such as forward=fwd_{stage} or encoder.forward=fwd_enc*"
        raise OptionError("name", f"{expected}, got {runs.show(text)}")
    stage, what, pattern = written[1] or "", re.sub(r"[\s-]+", "_", written[2].strip().lower()), written[3]
    if what not in PASSES:
        near = did_you_mean(what, PASSES)
        raise OptionError("name", f"expected a pass out of {', '.join(PASSES)}, got {runs.show(what)}{near}")
    if pattern.count("{stage}") > (0 if stage else 1):
        raise OptionError("name", f"expected the stage once, got it twice in {runs.show(text)}")
    return Rule(what, stage, pattern)
