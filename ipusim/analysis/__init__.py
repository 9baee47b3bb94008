"""Analyse the Timeline of a run: phases, utilisation, bubble, throughput, memory. Functions are pure and vectorised.

As ``analysis`` of :mod:`ipusim.api` this package offers these functions and their results.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.analysis.bubble import bubble_of
    from ipusim.analysis.causes import IdleCauses, idle_causes, ipu_time
    from ipusim.analysis.critical_path import CriticalPath, PathPart, critical_path_of, path_parts
    from ipusim.analysis.disturbed import DisturbanceCost, DisturbedCable, slowdown
    from ipusim.analysis.effects import SYNTHETIC_DATA, effects_of
    from ipusim.analysis.executions import Execution, executions_of, find_execution
    from ipusim.analysis.figures import (
        FIGURE_UNITS,
        FIGURES,
        OLDER_VERSIONS,
        SCHEMA_VERSION,
        Figure,
        figure,
        known_figures,
    )
    from ipusim.analysis.fit import Fit
    from ipusim.analysis.fits import Fits, fits_or_unknown
    from ipusim.analysis.fullest_memory import FullestMemory, fullest
    from ipusim.analysis.idle_spans import CAUSES
    from ipusim.analysis.learning import LOSS, Learning, read_results
    from ipusim.analysis.memory import MemoryCurve, Steps, memory_curves, moment, product_steps
    from ipusim.analysis.orders import FasterOrder, OrderReport
    from ipusim.analysis.phases import PHASES, Phase, execution_phases, phases_of, time_steps
    from ipusim.analysis.plain import as_plain
    from ipusim.analysis.recovery import redone_work
    from ipusim.analysis.run_times import RunTimes, run_times_of
    from ipusim.analysis.stash import Stash, stash_of
    from ipusim.analysis.summary import LearningSummary
    from ipusim.analysis.throughput import Throughput, rates_of, throughput_of
    from ipusim.analysis.utilisation import IpuUse, ratio
    from ipusim.analysis.verdict import Verdict, busiest_stages, slowest_stages, verdict_of
    from ipusim.analysis.waterfall import Waterfall
else:
    __getattr__, __dir__ = lazy(__name__)
