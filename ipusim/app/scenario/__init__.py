"""YAML scenarios to Requests, with the position of every value."""

from ipusim.app.scenario.load import load_job, load_request
from ipusim.app.scenario.problems import ScenarioError, ScenarioMemoryError

__all__ = ["ScenarioError", "ScenarioMemoryError", "load_job", "load_request"]
