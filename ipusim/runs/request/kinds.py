"""Values of one of several kinds, such as the layers of a model: the model of a kind is made for the first such value.

pydantic's own union makes the models of all kinds: those of layers, optimizers and disturbances took a sixth of the
time in which a command starts.
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

#: Of which values a JSON Schema is being made.
_DESCRIBED: Final[set[OneOfKinds]] = set()


@dataclass(frozen=True)
class OneOfKinds:
    """Annotation of a value of one of several kinds, which a tag tells apart.

    Attributes:
        tag_of: returns the tag of a value's kind; None where it has none.
        kinds: returns the kinds by their tags, in order; each makes its model, the same in every call.
    """

    tag_of: Callable[[object], str | None]
    kinds: Callable[[], Mapping[str, Callable[[], type[Node]]]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's own reading of the field."""
        return core_schema.with_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe all kinds, by references where the value may stand within one of them."""
        union: dict[str, Any] = {**_union(self).core_schema}
        if self in _DESCRIBED:
            union = union.get("schema", union)  # without its definitions, which are there
            refs = {tag: of.get("ref") or of["schema_ref"] for tag, of in union["choices"].items()}
            union |= {"choices": {tag: core_schema.definition_reference_schema(ref) for tag, ref in refs.items()}}
            return handler(union)
        _DESCRIBED.add(self)
        try:
            return handler(union)
        finally:
            _DESCRIBED.remove(self)

    def _read(self, value: object, info: ValidationInfo) -> Any:
        tag = self.tag_of(value)
        reader = _one_kind(self, tag) if tag in self.kinds() else _union(self).validator
        return reader.validate_python(value, context=info.context)


@cache
def _union(value: OneOfKinds) -> TypeAdapter[Any]:
    """Return what reads values of all kinds."""
    models = (Annotated[model_of(), Tag(tag)] for tag, model_of in value.kinds().items())
    union: Any = Annotated[reduce(or_, models), Discriminator(value.tag_of)]
    return TypeAdapter(union)


@cache
def _one_kind(value: OneOfKinds, tag: str) -> SchemaValidator:
    """Return what reads values of one kind; its errors have the tag in their path, as those of the union have."""
    model = TypeAdapter(value.kinds()[tag]()).core_schema
    return SchemaValidator(core_schema.tagged_union_schema({tag: model}, value.tag_of))
