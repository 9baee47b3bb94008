"""Validate values of several kinds, such as layers; build a kind's model for its first value.

A kind is a set of keys, such as those of a dense layer; a tag in the value names it. Pydantic's union would build the
models of all kinds: models of layers, optimizers and disturbances took a sixth of a command's start-up time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Final

from pydantic import Discriminator, GetCoreSchemaHandler, GetJsonSchemaHandler, Tag, TypeAdapter, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from ipusim.runs.request.fields import Node

#: Annotations whose JSON Schema is being written; a nested value of the same kinds then refers to that schema.
_UNFINISHED: Final[set[OneOfKinds]] = set()


@dataclass(frozen=True)
class OneOfKinds:
    """Annotation of a value of several kinds, discriminated by a tag.

    Attributes:
        tag_of: function that returns the tag of a value's kind; None for an unknown kind.
        kinds: function that returns the kinds by tag, in order; each kind is a function that returns its model, always
            the same object.
    """

    tag_of: Callable[[object], str | None]
    kinds: Callable[[], Mapping[str, Callable[[], type[Node]]]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's validation of the field."""
        return core_schema.with_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe all kinds; references describe recursive values."""
        union: dict[str, Any] = {**_union(self).core_schema}
        if self in _UNFINISHED:
            union = union.get("schema", union)  # without definitions, which the outer description has
            refs = {tag: choice.get("ref") or choice["schema_ref"] for tag, choice in union["choices"].items()}
            union |= {"choices": {tag: core_schema.definition_reference_schema(ref) for tag, ref in refs.items()}}
            return handler(union)
        _UNFINISHED.add(self)
        try:
            return handler(union)
        finally:
            _UNFINISHED.remove(self)

    def _read(self, value: object, info: ValidationInfo) -> Any:
        tag = self.tag_of(value)
        reader = _one_kind(self, tag) if tag in self.kinds() else _union(self).validator
        return reader.validate_python(value, context=info.context)


@cache
def _union(value: OneOfKinds) -> TypeAdapter[Any]:
    """Return the validator of all kinds."""
    models = (Annotated[model_of(), Tag(tag)] for tag, model_of in value.kinds().items())
    union: Any = Annotated[reduce(or_, models), Discriminator(value.tag_of)]
    return TypeAdapter(union)


@cache
def _one_kind(value: OneOfKinds, tag: str) -> SchemaValidator:
    """Return the validator of one kind; error paths include the tag, as in the union."""
    model = TypeAdapter(value.kinds()[tag]()).core_schema
    return SchemaValidator(core_schema.tagged_union_schema({tag: model}, value.tag_of))
