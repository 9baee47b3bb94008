"""From the text of a YAML scenario to a Request, with the place of every value."""

from ipusim.runs.places import Place, PlacedProblem
from ipusim.scenario.load import load_job, load_request
from ipusim.scenario.problems import ScenarioError, ScenarioMemoryError

__all__ = ["Place", "PlacedProblem", "ScenarioError", "ScenarioMemoryError", "load_job", "load_request"]
