"""From the text of a YAML scenario to the values that the simulator works on."""

from ipusim.scenario.experiment import Experiment, HeldOut
from ipusim.scenario.load import load_scenario
from ipusim.scenario.problems import Place, Problem, ScenarioError
from ipusim.scenario.resolve import load_experiment
from ipusim.scenario.schema import Scenario, json_schema

__all__ = [
    "Experiment",
    "HeldOut",
    "Place",
    "Problem",
    "Scenario",
    "ScenarioError",
    "json_schema",
    "load_experiment",
    "load_scenario",
]
