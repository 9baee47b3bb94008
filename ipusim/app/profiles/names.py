"""Find pass, stage and micro-batch of a measured span by rules about its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from ipusim.api import runs
from ipusim.base.errors import FileError, OptionError
from ipusim.base.near_names import did_you_mean

#: Passes and weight update of a stage, named like the keys of a scenario's stages.
PASSES: Final = ("forward", "backward", "backward_input", "backward_weights", "update")
FORWARD: Final = PASSES[0]
BACKWARD: Final = PASSES[1:-1]
UPDATE: Final = PASSES[-1]
#: Other activities of a rule: a forward and a backward pass in a single span, a receive (wait for another rank) inside
#: a pass, and a step of the profiler.
OVERLAP, WAIT, STEP = "overlap", "wait", "step"
#: Names in record_function. From torch.distributed.pipelining: "PP:" with an action (stage, kind, micro-batch) in
#: versions whose schedules include ScheduleDualPipeV, "Forward" and "Backward" with a micro-batch in ScheduleGPipe from
#: torch 2.4 on. Updates come from torch.optim, receives from c10d and its backends, profiler steps from the profiler.
TORCH: Final = (
    "forward=PP:{stage}F{micro_batch}",
    "backward=PP:{stage}B{micro_batch}",
    "backward_input=PP:{stage}I{micro_batch}",
    "backward_weights=PP:{stage}W{micro_batch}",
    "forward=Forward {micro_batch}",
    "backward=Backward {micro_batch}",
    "update=Optimizer.step#*",
    "overlap=PP:({stage}F{micro_batch};*)OVERLAP_F_B",
    "wait=gloo:recv*",
    "wait=nccl:recv*",
    "wait=c10d::recv_*",
    "step=ProfilerStep#{micro_batch}",
)
#: Timers of Megatron-LM.
MEGATRON: Final = ("forward=forward-compute", "backward=backward-compute", "update=optimizer")
#: Spans of Megatron-LM's OpenTelemetry export.
MEGATRON_SPANS: Final = (
    "forward=megatron.microbatch.forward",
    "backward=megatron.microbatch.backward",
    "update=megatron.optimizer_step",
    "wait=megatron.p2p.recv_*",
)
#: Timers of DeepSpeed's wall clock breakdown.
DEEPSPEED: Final = ("forward=forward_microstep", "backward=backward_microstep", "update=step_microstep")

_RULE: Final = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_-]{0,63})\.)?([A-Za-z _-]+)=(.+)", re.DOTALL)
#: Placeholders of a pattern.
_PLACEHOLDERS: Final = re.compile(r"(\*|\{stage\}|\{micro_batch\})")
#: Regular expression of each placeholder.
_EXPRESSIONS: Final = {"*": ".*", "{stage}": "(?P<stage>[0-9]{1,4})", "{micro_batch}": "(?P<micro_batch>[0-9]{1,9})"}
_NUMBER: Final = re.compile(r"[0-9]+")
#: Maximum length of a name that rules may match.
_MOST_NAME_CHARACTERS: Final = 1000
#: Maximum number of cached names.
_MOST_CACHED_NAMES: Final = 1 << 16


@dataclass(frozen=True)
class NameMeaning:
    """Meaning of a name.

    Attributes:
        activity: pass, weight update, overlapped forward and backward pass, wait, or step of the profiler.
        stage: name of the stage, or its number as text; empty if unknown.
        micro_batch: number of the micro-batch, or of a step; None if unknown.
        kind: name with ``#`` for each number: names that differ only in numbers have the same kind.
        is_part: whether the name is that of a part of a pass, from a rule with several patterns.
    """

    activity: str
    stage: str = ""
    micro_batch: int | None = None
    kind: str = ""
    is_part: bool = False


@dataclass(frozen=True)
class Rule:
    """Rule that gives names of a pattern their meaning.

    Attributes:
        activity: as in :class:`NameMeaning`.
        stage: name of the stage; empty if given by ``{stage}`` in the pattern, or by the rank.
        patterns: names, with ``*`` for any text and ``{stage}`` and ``{micro_batch}`` for numbers; several patterns are
            the parts of a pass.
        is_chosen: whether the user gave the rule.
    """

    activity: str
    stage: str
    patterns: tuple[str, ...]
    is_chosen: bool = False

    @cached_property
    def _expressions(self) -> tuple[re.Pattern[str], ...]:
        return tuple(
            re.compile(
                "".join(_EXPRESSIONS.get(part, re.escape(part)) for part in _PLACEHOLDERS.split(pattern)), re.DOTALL
            )
            for pattern in self.patterns
        )

    def meaning_of(self, name: str) -> NameMeaning | None:
        """Return the meaning of ``name``; None if the rule does not match."""
        for expression in self._expressions:
            if match := expression.fullmatch(name):
                groups = match.groupdict()
                stage = self.stage or (str(int(groups["stage"])) if groups.get("stage") else "")
                micro_batch = int(groups["micro_batch"]) if groups.get("micro_batch") else None
                return NameMeaning(self.activity, stage, micro_batch, _NUMBER.sub("#", name), len(self.patterns) > 1)
        return None


class Names:
    """Rules for the names in a measured file; the first matching rule decides."""

    def __init__(self, texts: Sequence[str], usual: Sequence[str]) -> None:
        """Read the user's rules ``texts``; other passes follow the format's rules ``usual``.

        A rule is written ``PASS=NAME`` or ``STAGE.PASS=NAME``.

        Raises OptionError for a malformed rule.
        """
        rules = [_rule(text, is_chosen=True) for text in texts]
        passes = {rule.activity for rule in rules}
        self.rules = (*rules, *(rule for rule in map(_rule, usual) if rule.activity not in passes))
        self._used_rules: set[Rule] = set()
        self._meanings: dict[str, NameMeaning | None] = {}

    def __getitem__(self, name: str) -> NameMeaning | None:
        """Return the meaning of ``name``; None if no rule matches."""
        if name not in self._meanings:
            if len(self._meanings) > _MOST_CACHED_NAMES:
                self._meanings.clear()
            checked_name = name if len(name) <= _MOST_NAME_CHARACTERS else ""
            for rule in self.rules:
                if meaning := rule.meaning_of(checked_name):
                    self._used_rules.add(rule)
                    break
            else:
                meaning = None
            self._meanings[name] = meaning
        return self._meanings[name]

    def __str__(self) -> str:
        """Return the patterns of passes and weight updates, for messages."""
        return ", ".join(pattern for rule in self.rules if rule.activity in PASSES for pattern in rule.patterns)

    def refuse_unused(self, path: Path, span_names: Iterable[str]) -> None:
        """Raise FileError if a rule of the user's has matched no name, naming the nearest of ``span_names``."""
        names = [*span_names]
        for rule in self.rules:
            if rule.is_chosen and rule not in self._used_rules:
                pattern = rule.patterns[0]
                near = (
                    did_you_mean(_PLACEHOLDERS.sub("", pattern), names)
                    or f"; names are {', '.join(names[:6]) or 'none'}"
                )
                raise FileError(f"{path}: expected spans named {pattern} for {rule.activity}, got none{near}")


def _rule(text: str, is_chosen: bool = False) -> Rule:
    parts = _RULE.fullmatch(text)
    if parts is None:
        hint = "expected PASS=NAME or STAGE.PASS=NAME, such as forward=fwd_{stage} or encoder.forward=fwd_enc*"
        raise OptionError("name", f"{hint}, got {runs.show(text)}")
    stage, activity, pattern = parts[1] or "", re.sub(r"[\s-]+", "_", parts[2].strip().lower()), parts[3]
    if activity not in (*PASSES, OVERLAP, WAIT, STEP):
        near = did_you_mean(activity, PASSES)
        raise OptionError("name", f"expected a pass out of {', '.join(PASSES)}, got {runs.show(activity)}{near}")
    patterns = tuple(pattern.split("+"))
    for part in patterns:
        if part.count("{stage}") > (0 if stage else 1):
            raise OptionError("name", f"expected the stage once, got it twice in {runs.show(text)}")
        if part.count("{micro_batch}") > 1:
            raise OptionError("name", f"expected the micro-batch once, got it twice in {runs.show(text)}")
        if not part:
            raise OptionError("name", f"expected a name between plus signs, got none in {runs.show(text)}")
    return Rule(activity, stage, patterns, is_chosen)
