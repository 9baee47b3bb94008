"""Page on all keys of a scenario: accepted values, default, meaning and an example."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ipusim.analysis.figures import FIGURES, Figure
from ipusim.base.units import UNITS, enumerated
from ipusim.runs.problems import one_of
from ipusim.runs.request.schema import json_schema
from reports.scenario_keys import Schema, Section, definition, sections

#: Values in use, by the mapping's path, its kind (or none) and key.
Values = dict[tuple[str, str, str], list[Any]]

SCENARIOS = Path(__file__).parent.parent / "scenarios"

HEAD = """\
# Every key of a scenario

Look up here what each key of a scenario accepts, its default and an example. `python -m reports` makes the page from
the JSON Schema of scenarios; examples come from the scenarios in this repository where possible.

The schema also gives completion and checks in editors with the YAML language server. Write the schema next to your
scenarios, and name the file in the first line of a scenario:

```console
$ ipusim check --schema > scenario.schema.json
```

```yaml
# yaml-language-server: $schema=scenario.schema.json
system: {name: m2000}
pipeline:
  gradient_accumulation_count: 8
  stages:
    - {name: first, forward: 1.2 ms, backward: 2.4 ms, output_bytes: 64 KiB}
    - {name: second, forward: 1.2 ms, backward: 2.4 ms, gradient_bytes: 64 KiB}
```

In a path, `[]` is an element of a list. `--set` takes the name or number of the element, as in
`--set model.layers.dense32.units=64` or `--set pipeline.stages.0.forward=1000`. Choices may be written in any case. A
name has at most 64 letters, digits, `_` and `-`, and starts with a letter or `_`. A quantity is a number in its base
unit, or a text with a unit:

"""

FIGURES_HEAD = """\
## Figures

`expect` accepts these names, and paths in `summary.json` such as `throughput.run_s`. Of these names `sweep --measure`
accepts {measures}, and no path. A dot selects a part of a figure: `peak.0`, `mean_loss.first`.

| figure | unit | meaning | path |
| --- | --- | --- | --- |
"""

#: Example values by heading and key, for keys that no scenario sets and whose schema gives no example.
EXAMPLES: dict[tuple[str, str], Any] = {
    ("The scenario itself", "name"): "mine",
    ("The scenario itself", "code_bytes"): "24 MiB",
    ("The scenario itself", "expect"): {"throughput": "at least 0.9 M samples/s"},
    ("system", "host"): {"infeed": "32 GB/s"},
    ("system", "streaming_memory"): {"bandwidth": "16 GB/s"},
    ("system", "minimum_remote_tensor_size"): "4 KiB",
    ("system", "maximum_cross_replica_sum_buffer_size"): "10 MiB",
    ("system.streaming_memory", "capacity"): "32 GiB",
    ("rates", "program_code"): "4 KiB",
    ("rates", "compute_set_code"): "137 B",
    ("data: synthetic_targets", "target_shape"): [3],
    ("data: idx", "images"): "train-images-idx3-ubyte.gz",
    ("data: idx", "labels"): "train-labels-idx1-ubyte.gz",
    ("data: npz", "file"): "samples.npz",
    ("data: npz", "x"): "images",
    ("data: npz", "y"): "labels",
    ("model.layers[]: conv1d", "strides"): 2,
    ("model.layers[]: python", "name"): "scale",
    ("model.layers[]: python", "python"): "mine.py:scale",
    ("model.layers[]: python", "parameters"): {"s": [32]},
    ("model.layers[]: python", "fill"): {"s": 1.0},
    ("model.layers[]: python", "cost"): {"forward": 1000, "backward": 2000},
    ("optimizer", "map_gradient"): {"clip_by_norm": 1.0},
    ("optimizer: adam", "exclude_from_weight_decay"): ["/b", "norm"],
    ("optimizer: lamb", "exclude_from_weight_decay"): ["/b", "norm"],
    ("pipeline", "continuous_weight_updates"): False,
    ("pipeline", "outfeed_mask"): [False, False],
    ("pipeline.stages[]: timed", "accumulator_bytes"): "96 MiB",
    ("pipeline.stages[]: timed", "label_bytes"): "128 B",
}

#: Example of a layer's name.
A_LAYER = "dense32"
#: Maximum length of an example in a table, in characters.
WIDE = 100


def scenario_page() -> str:
    """Return the page as Markdown."""
    schema = json_schema()
    result = sections(schema)
    kinds = [(kind, units, example) for kind, (units, example) in UNITS.items() if kind != "cycles"]
    units = [f"| {kind} | {', '.join(names)} | `{example}` |\n" for kind, names, example in kinds]
    parts = ["| quantity | units | example |\n| --- | --- | --- |\n" + "".join(units)]
    values = values_in_use()
    for section in result.values():
        level = "###" if section.kind or "." in section.path else "##"
        text = f"{level} {section.heading}\n\n{section.about}"
        others = [f"`{path}`" for path in dict.fromkeys(section.also) if path != section.path]
        if section.within and result[section.within].also and not others:
            text += f" Only in `{section.path}` itself."
        elif others and not section.within:
            text += f"\n\nThe same {'keys' if section.keys else 'kinds'}: {', '.join(others)}."
        text += "\n"
        if section.keys:
            text += "\n| key | takes | default | meaning | example |\n| --- | --- | --- | --- | --- |\n"
        for key, node in section.keys.items():
            meaning, default = meaning_and_default(section, key)
            shown = yaml_text({key: example(section, key, values, schema["$defs"])})[1:-1]
            text += f"| `{key}` | {takes(node, result)} | {default} | {meaning} | `{shown}` |\n"
        parts.append(text)
    figures_head = FIGURES_HEAD.format(measures=enumerated(f"`{figure.name}`" for figure in FIGURES if figure.measure))
    return HEAD + "\n".join([*parts, figures_head + "".join(map(_figure_row, FIGURES))])


def _figure_row(figure: Figure) -> str:
    return f"| `{figure.name}` | {figure.unit} | {figure.meaning} | `{figure.path.replace('{}', figure.item)}` |\n"


def takes(node: Schema, result: dict[str, Section]) -> str:  # noqa: PLR0911 - one return for each form of schema
    """Describe the accepted values of a key: kind, unit and bounds."""
    expected = node.get("errorMessage", "")
    choices = [entry for entry in (*node.get("anyOf", ()), *node.get("oneOf", ())) if entry.get("type") != "null"]
    if "$ref" in node:
        section = result[definition(node["$ref"])]
        heading = section.within or section.heading
        return f"[{heading.replace('[]', '')}](#{anchor(heading)})"
    if "examples" in node:  # a quantity; the page explains its spelling above the sections
        return re.sub(r"\d{5,}", lambda digits: f"{int(digits.group()):,}", expected.split(", as a number")[0])
    if "x-names" in node:
        words = [node["x-words"]] if "x-words" in node else []
        return one_of([*(f"`{name}`" for name in node["x-names"]), *words])
    if choices:
        return one_of(dict.fromkeys(takes(choice, result) for choice in choices))
    if node.get("type") == "array":
        return f"list of {_counts(node)} ({takes(node['items'], result)})"
    if "patternProperties" in node and expected:
        return expected.split(", such as")[0]
    if "patternProperties" in node:
        (value,) = node["patternProperties"].values()
        return f"mapping of names (each {takes(value, result)})"
    if "enum" in node:
        return f"`{node['enum'][0]}`"
    if "const" in node:
        return f"`{node['const']}`"
    if node["type"] == "string":
        return "a name" if expected.startswith("a name of") else expected or "text"
    words = {"boolean": "true or false", "integer": "whole number", "number": "number"}
    return words[node["type"]] + _bounds(node)


def _counts(node: Schema) -> str:
    least, most = node.get("minItems", 0), node["maxItems"]
    return f"{most}" if least == most else f"{least} to {most:,}" if least else f"at most {most:,}"


def _bounds(node: Schema) -> str:
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    return "".join(f" {word} {node[bound]:,.10g}" for bound, word in words.items() if bound in node)


def meaning_and_default(section: Section, key: str) -> tuple[str, str]:
    """Return a key's meaning without its default, and its default."""
    node = section.keys[key]
    stated_default = re.search(r"; default: ([^;]+)", node.get("description", ""))
    meaning = node.get("description", "the kind").replace(stated_default.group() if stated_default else "\0", "")
    if key in section.required:
        return meaning, "required"
    if stated_default:
        return meaning, stated_default.group(1)
    if "$ref" in node or "default" not in node:
        return meaning, "its keys' own"
    return meaning, "none" if node["default"] is None else f"`{yaml_text(node['default'])}`"


def example(section: Section, key: str, values: Values, definitions: Schema) -> Any:
    """Return an example for a key: chosen, from a scenario, or built."""
    node = section.keys[key]
    if (section.heading, key) in EXAMPLES:
        return EXAMPLES[section.heading, key]
    for kind in dict.fromkeys((section.kind, "")):
        for value in values[section.path, kind, key]:
            is_accepted = value in node.get("x-names", (value,))  # the same key of another kind may accept other names
            if is_accepted and value != node.get("default") and len(yaml_text(value)) <= WIDE:
                return value
    return _made(node, definitions)


def _made(node: Schema, definitions: Schema) -> Any:  # noqa: PLR0911 - one return for each form of schema
    """Build a value allowed by a schema, different from a named default."""
    if "$ref" in node:
        mapping = definitions[definition(node["$ref"])]
        example_keys = mapping.get("required") or list(mapping["properties"])[-1:]
        return {key: _made(mapping["properties"][key], definitions) for key in example_keys}
    if "examples" in node:
        return node["examples"][0]
    if "x-names" in node:
        return next(name for name in node["x-names"] if name != node.get("default"))
    if "such as " in node.get("errorMessage", ""):
        return YAML(typ="safe").load(node["errorMessage"].split("such as ")[1])
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        if choice.get("type") != "null":
            return _made({"default": node.get("default"), **choice}, definitions)
    if node["type"] == "array":
        return [_made(node["items"], definitions)] * max(1, node.get("minItems", 1))
    if node["type"] == "string":
        return node.get("const", A_LAYER)
    if node["type"] == "boolean":
        return not node.get("default")
    if node["type"] == "integer":
        return min(2 * (node.get("default") or node["minimum"]) or 1, node["maximum"])
    is_share = 1 in (node.get("maximum"), node.get("exclusiveMaximum"))
    return node.get("default") or (0.1 if is_share else 1)


def values_in_use() -> Values:
    """Return the values in the repository's scenarios, by path, kind and key.

    Values of all kinds also appear without kind.
    """
    result: Values = defaultdict(list)
    for file in sorted(SCENARIOS.glob("*.yaml")):
        for path, kind, key, value in _values("", YAML(typ="safe").load(file)):
            for entry in dict.fromkeys((kind, "")):
                result[path, entry, key].append(value)
    return result


def _values(path: str, node: Any) -> Iterator[tuple[str, str, str, Any]]:
    if isinstance(node, list):
        for entry in node:
            yield from _values(f"{path}[]".replace(".layers[].layers[]", ".layers[]"), entry)
    if isinstance(node, dict):
        for key, value in node.items():
            yield path, node.get("type", ""), key, value
            yield from _values(f"{path}.{key}" if path else key, value)


def yaml_text(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {yaml_text(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def anchor(heading: str) -> str:
    """Return the link target of a heading, as generated by GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
