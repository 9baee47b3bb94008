"""Define the schema of a scenario: all keys with kind, bounds, unit and meaning.

Bounds keep valid scenarios within memory and 64-bit cycles; the product of the counts is checked when a Job is
assembled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, Strict

from ipusim.model.learning.table import rows as optimizers
from ipusim.runs.problems import one_of
from ipusim.runs.request.data_spec import DataSpec
from ipusim.runs.request.derived import RowSpec, spec_of
from ipusim.runs.request.disturbance_spec import DisturbanceSpec
from ipusim.runs.request.expectation import ExpectationsField
from ipusim.runs.request.fields import NONE, Bytes, Choice, Name, Node, Seed, expects, kind_of
from ipusim.runs.request.graphcore import Argument
from ipusim.runs.request.kinds import OneOfKinds
from ipusim.runs.request.model_spec import ModelSpec
from ipusim.runs.request.pipeline_spec import DType, PipelineSpec
from ipusim.runs.request.rates_spec import RatesOrFile, RatesSpec
from ipusim.runs.request.system_spec import SystemSpec


@cache
def _optimizers() -> dict[str, Callable[[], type[RowSpec]]]:
    return {f"<{row.kind}>": cache(partial(spec_of, row, RowSpec)) for row in optimizers()}


if TYPE_CHECKING:
    OptimizerSpec = RowSpec
else:
    #: Weight update, once per execution of the pipeline.
    OptimizerSpec = Annotated[Any, OneOfKinds(kind_of, _optimizers)]
#: Depth of a queue; assembly checks Graphcore's rule, with Graphcore's message, and the schema only states the range.
_Depth = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


def _without_none(value: object) -> object:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _or_none(schema: dict[str, Any]) -> None:
    """Allow the word ``none`` besides null, and describe the accepted values."""
    schema["anyOf"].append(NONE)
    schema |= expects("a mapping with the type and learning_rate of an optimizer, or none for inference")


class InfeedSpec(Node, title="infeed"):
    """Queue from the host to the first stage."""

    prefetch_depth: _Depth = Field(
        default=3,
        description="micro-batches that the host prepares in advance, 1 to 255",
        json_schema_extra={"minimum": 1, "maximum": 255},
    )
    element_bytes: Bytes | None = Field(
        default=None, description="bytes of one micro-batch; default: the bytes of a micro-batch of the data"
    )


class OutfeedSpec(Node, title="outfeed"):
    """Queue from the last stage to the host."""

    mode: Annotated[Literal["ALL", "LAST"], Choice(("ALL", "LAST"))] = Field(
        default="ALL",
        description="whether the results of all micro-batches are sent, or only the results of a step's last "
        "micro-batch",
    )
    buffer_depth: Annotated[int, Field(ge=-(2**31), le=1024)] = Field(
        default=3, description="number of results that the host's buffer holds", json_schema_extra={"minimum": 1}
    )
    element_bytes: Bytes | None = Field(
        default=None, description="bytes of one micro-batch's results; default: the last stage's"
    )


class EvaluateSpec(Node, title="evaluate"):
    """Loss and accuracy on held-out data."""

    every: int | None = Field(
        default=None,
        ge=1,
        le=10**6,
        description="steps from one evaluation to the next; default: only after the last step",
    )


class Options(Node, title="scenario"):
    """Program for simulated IPUs, with its system and data."""

    name: Annotated[Name | None, Argument("names the run's folder", name="name")] = Field(
        default=None, description="names the run's folder; default: the file's name"
    )
    system: SystemSpec = Field(description="the machine")
    data: DataSpec | None = Field(default=None, description="training data; absent if only time is simulated")
    model: ModelSpec | None = Field(
        default=None, description="the layers; absent if the stages have functions or costs"
    )
    pipeline: PipelineSpec = Field(description="stages, schedule and counts")
    optimizer: Annotated[
        OptimizerSpec | None,
        BeforeValidator(_without_none),
        Argument(
            f"{one_of(row.kind for row in optimizers())}, with gradients mapped as `optimizer.map_gradient` says; "
            "none is inference",
            name="optimizer_function",
        ),
    ] = Field(default=None, description="the weight update; none, or absent, for inference", json_schema_extra=_or_none)
    training: bool | None = Field(
        default=None,
        description="whether backward passes run; default: if there is an optimizer, or a stage with backward cycles",
    )
    steps: int = Field(
        default=1, ge=1, le=10**6, description="session runs, each of repeat_count executions of the pipeline"
    )
    seed: Seed = Field(default=0, description="seed of the initial weights")
    precision: Annotated[DType, Choice(get_args(DType))] = Field(
        default="float32", description="floating-point type of weights and activations; float64 is for checks"
    )
    numerics: Annotated[Literal["on", "off"], Choice(("on", "off"))] | None = Field(
        default=None, description="whether the arithmetic runs; off simulates only time; default: on if there are data"
    )
    memory: Annotated[Literal["error", "report", "off"], Choice(("error", "report", "off"))] | None = Field(
        default=None,
        description="whether a program that exceeds an IPU's memory is refused (error), or only reported; default: "
        "error, but off on the machine free, which has no limit",
    )
    code_bytes: Bytes | None = Field(
        default=None,
        description="bytes of each IPU's memory for code and vertices; 0: none; default: an estimate from the "
        "operations of the IPU's stages, if the operations are known",
    )
    use_synthetic_data: bool = Field(
        default=False,
        description="whether the feeds cost no time, as with Graphcore's flag use_synthetic_data; losses are still "
        "computed",
    )
    infeed: Annotated[
        InfeedSpec, Argument("prefetch depth, bytes and host rates; the data set is `data`", name="infeed_queue")
    ] = Field(default_factory=InfeedSpec, description="the queue from the host")
    outfeed: Annotated[
        OutfeedSpec, Argument("mode ALL or LAST, buffer depth, bytes and host rates", name="outfeed_queue")
    ] = Field(default_factory=OutfeedSpec, description="the queue to the host")
    evaluate: EvaluateSpec | None = Field(default=None, description="evaluation on held-out data")
    disturbances: Annotated[tuple[DisturbanceSpec, ...], Strict(False)] = Field(
        default=(),
        max_length=1024,
        description="departures from the rates: slow IPUs, bad cables, a host that stalls; the run is compared with a "
        "run without the disturbances",
    )
    expect: Annotated[Mapping[str, Any], ExpectationsField()] | None = Field(
        default=None,
        description="expected figures of the run, by names of figures or paths in summary.json: a comparison, a range "
        "such as 0.9 M..1.1 M samples/s, a quantity with a tolerance such as 540 us +- 2 %, a whole number or "
        "a name; `ipusim run` exits with 1 if a figure is not as expected",
    )
    rates: RatesOrFile = Field(
        default_factory=RatesSpec,
        description="rates of computation and links, as a mapping or the name of a file such as `ipusim validate "
        "--fit` writes; `ipusim devices --figures` lists all rates",
    )

    def with_pipeline(self, **values: Any) -> Options:
        """Return options with changed ``values`` in the section ``pipeline``, without validation."""
        return self.model_copy(update={"pipeline": self.pipeline.model_copy(update=values)})


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a scenario, for editors and messages."""
    schema = Options.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
