"""Values of one of several kinds: read as pydantic's own union reads them, with the models of their kinds alone."""

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import pytest
from pydantic import Discriminator, Field, Strict, Tag, TypeAdapter

from ipusim.runs.request.fields import Node, kind_of
from ipusim.runs.request.kinds import OneOfKinds


class Dense(Node, title="dense"):
    """A dense layer."""

    type: Literal["dense"]
    units: int = Field(ge=1)


class Block(Node, title="block"):
    """A block of entries."""

    type: Literal["block"]
    layers: "Annotated[tuple[Entry, ...], Strict(False)]"


class Unused(Node, title="unused"):
    """A kind that no value is of."""

    type: Literal["unused"]


MADE: list[type[Node]] = []
KINDS = {"<dense>": Dense, "<block>": Block, "<unused>": Unused}


def made(model):
    MADE.append(model)
    return model


#: As it is read here, and as pydantic reads it.
ENTRY = Annotated[
    Any, OneOfKinds(kind_of, lambda: {tag: lambda model=model: made(model) for tag, model in KINDS.items()})
]
UNION = Annotated[reduce(or_, (Annotated[model, Tag(tag)] for tag, model in KINDS.items())), Discriminator(kind_of)]
Entry = ENTRY
Block.model_rebuild()
READ = TypeAdapter(tuple[ENTRY, ...])


GOOD = [
    [{"type": "dense", "units": 4}],
    [Dense(type="dense", units=2), {"type": "block", "layers": []}],
    [{"type": "block", "layers": [{"type": "dense", "units": 1}, {"type": "block", "layers": []}]}],
]


@pytest.mark.parametrize("value", GOOD)
def test_a_value_is_read_as_the_union_reads_it_and_makes_the_models_of_its_kinds(value):
    MADE.clear()
    read = READ.validate_python(tuple(value))
    assert [type(entry) for entry in read] == [KINDS[kind_of(entry)] for entry in value]
    assert all(entry.model_dump()["type"] == kind_of(entry)[1:-1] for entry in read)
    assert Unused not in MADE


def test_its_json_schema_is_that_of_the_union():
    """Entries of blocks too are described by pydantic's own union meanwhile."""
    Block.model_rebuild(force=True, _types_namespace={"Entry": UNION})
    expected = TypeAdapter(tuple[UNION, ...]).json_schema()
    Block.model_rebuild(force=True, _types_namespace={"Entry": ENTRY})
    assert TypeAdapter(tuple[ENTRY, ...]).json_schema() == expected
