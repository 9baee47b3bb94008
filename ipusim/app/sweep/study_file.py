"""Read the input of a sweep: a scenario with varied options, or a study file with both.

A study file is YAML with the keys ``scenario`` (a file, relative to the study's folder), ``vary`` (paths of options,
each with a list of values, or a text as in ``--vary``), ``zip`` and ``measure``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ipusim.api import Job, KeyPath, Request, analysis, runs
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import Source, read_source
from ipusim.app.study.result import Result
from ipusim.app.study.trial import time_alone
from ipusim.app.sweep.ceiling import ceilings
from ipusim.app.sweep.ensemble import Ensemble, seed_axes
from ipusim.app.sweep.measures import measure_of
from ipusim.app.sweep.outcome import outcome_of
from ipusim.app.sweep.report import SweepResult
from ipusim.app.sweep.sweep import Sweep
from ipusim.app.sweep.vary import Axis, axis_of, parse_axis, points_of
from ipusim.app.sweep.weak_points import WeakPoints, one_at_a_time
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean

#: Files that a study may write.
ALL_FILES: Final = ("sweep.parquet", *SweepResult.names, *Ensemble.names, *WeakPoints.names)
#: Keys of a study file.
_KEYS: Final = ("scenario", "vary", "zip", "measure")


@dataclass(frozen=True)
class Study:
    """Scenario with its varied options.

    Attributes:
        scenario: file of the scenario.
        axes: varied options.
        is_zipped: whether axes vary together; otherwise every combination of their values is a point.
        measure: measure that ranks points; None uses the default measure.
        position_of: function from an axis's path to its position in the file or on the command line.
        seeds: number of runs with different seeds; None unless seeds vary.
        slower: factor on the time of a single IPU or cable, varied by the first axis; None for other studies.
    """

    scenario: Path
    axes: tuple[Axis, ...]
    is_zipped: bool
    measure: str | None
    position_of: Callable[[str], runs.Place]
    seeds: int | None = None
    slower: float | None = None

    def with_axes_of(self, request: Request) -> Study:
        """Return the study with axes derived from its request: seeds, or slower IPUs and cables.

        Raises OptionError for seeds without jitter, and as :func:`~ipusim.app.sweep.weak_points.one_at_a_time` does.
        """
        if self.seeds is not None:
            return replace(self, axes=seed_axes(request, self.seeds))
        if self.slower is not None:
            return replace(self, axes=(one_at_a_time(request, self.slower), *self.axes))
        return self

    @property
    def kind(self) -> type[Result]:
        """Class of the result: ensemble of seeds, weak points, or plain sweep."""
        return Ensemble if self.seeds is not None else SweepResult if self.slower is None else WeakPoints

    def result(self, swept: Sweep, request: Request, measure: analysis.Figure, picture: Picture = DEFAULT) -> Result:
        """Return the result of the points; plain sweeps are ranked and drawn by ``measure``."""
        if self.seeds is not None:
            return Ensemble(swept, outcome_of(time_alone(request), {"disturbances": []}), picture)
        if self.slower is not None:
            return WeakPoints(swept, self.slower, picture)
        return SweepResult(swept, ceilings(swept), measure, picture)

    def first_job(self, overrides: Sequence[str]) -> Job:
        """Assemble the first point of a study; raises ScenarioError with the position of each mistake."""
        source = apply_overrides(read_source(self.scenario), overrides)
        first = points_of(self.axes, self.is_zipped)[0]
        changes = [f"{axis.path}={json.dumps(value)}" for axis, value in zip(self.axes, first, strict=True)]
        return job_of(apply_overrides(source, changes, self.position_of))


def read_study(
    path: Path, options: Sequence[str], vary_together: bool, *, seeds: int | None = None, slower: float | None = None
) -> Study:
    """Return the Study of a scenario or study file, with a command's options.

    ``seeds`` is the number of runs with different seeds. ``slower`` is the factor on the time of a single IPU or cable.

    Raises OptionError for an option without path or values, for a scenario without varied options, and if options vary
    in addition to a study file; ScenarioError with every problem of a study file.
    """
    source = read_source(path)
    is_study = not source.data.keys().isdisjoint(("vary", "scenario"))
    if seeds is not None:
        if options or vary_together or slower is not None or is_study:
            raise OptionError("seeds", "expected a scenario and no further values to vary, got further values")
        return Study(path, (), True, None, lambda name: runs.Place(f"--seeds of {name}"), seeds=seeds)
    if slower is not None:
        if vary_together or is_study:
            raise OptionError("slower", "expected a scenario with crossed values to vary, got values combined in order")
        return Study(path, tuple(map(parse_axis, options)), False, None, runs.Place, slower=slower)
    if not is_study:
        if not options:
            text = "expected options to vary, such as pipeline.gradient_accumulation_count=8..256x2, got none"
            raise OptionError("vary", text)
        axes = tuple(map(parse_axis, options))
        points_of(axes, vary_together)
        return Study(path, axes, vary_together, None, lambda name: runs.Place(f"--vary {name}"))
    if options or vary_together:
        raise OptionError(
            "vary" if options else "zip", f"expected no further values with the study file {path}, got further values"
        )
    return _Reader(source).study()


class _Reader:
    """Reader of a study file that collects its problems."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._problems: list[runs.PlacedProblem] = []

    def study(self) -> Study:
        """Return the study; raises ScenarioError with every problem."""
        data = self._source.data
        for key in data.keys() - set(_KEYS):
            text = f"expected one of the keys {', '.join(_KEYS)}, got {key}{did_you_mean(key, _KEYS)}"
            self._note((key,), text, self._source.key_position((key,)))
        scenario = data.get("scenario")
        if not isinstance(scenario, str) or not scenario:
            self._note(("scenario",), f"expected the file of a scenario, got {runs.show(scenario)}")
        axes = self._axes(data.get("vary"))
        vary_together = data.get("zip", False)
        if not isinstance(vary_together, bool):
            self._note(("zip",), f"expected true or false, got {runs.show(vary_together)}")
        if axes and isinstance(vary_together, bool):
            self._try(("zip",) if vary_together else ("vary",), partial(points_of, axes, vary_together))
        measure = data.get("measure")
        if measure is not None:
            self._try(("measure",), partial(measure_of, str(measure), losses=True))
        if self._problems:
            raise ScenarioError(self._problems)
        position_of = {axis.path: self._source.key_position(("vary", axis.path)) for axis in axes}
        return Study(self._source.path.parent / str(scenario), axes, vary_together, measure, position_of.__getitem__)

    def _axes(self, options: Any) -> tuple[Axis, ...]:
        if not isinstance(options, dict) or not options:
            text = "expected options with values, such as pipeline.schedule: [grouped, interleaved]"
            self._note(("vary",), f"{text}, got {runs.show(options)}")
            return ()
        axes = []
        for path, values in options.items():
            items = values if isinstance(values, str | list) else [values]
            if axis := self._try(("vary", path), partial(axis_of, path, items)):
                axes.append(axis)
        return tuple(axes)

    def _try(self, path: KeyPath, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except OptionError as error:
            _, text, *_ = error.args
            self._note(path, text.removeprefix(f"{path[-1]}: "))
            return None

    def _note(self, path: KeyPath, text: str, position: runs.Place | None = None) -> None:
        self._problems.append(runs.PlacedProblem(position or self._source.position(path), runs.dotted(path), text))
