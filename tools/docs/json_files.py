"""Writes docs/json.md: keys, types and meanings of the JSON files, from their models.

    python -m tools.docs.json_files > docs/json.md

The meaning of a key is that of the section `Attributes:` in the docstring of its model.
"""

import sys
from typing import Any

from pydantic import BaseModel

from gt_bench.records.cell import CellResult, EnsembleSummary, Imported, Origins, Reduction, SearchSummary
from gt_bench.records.run import (
    ComputedBy,
    Digests,
    Environment,
    Measured,
    RunRecord,
    RunResult,
    Session,
    StaticReport,
    StoredPredictions,
)
from gt_bench.records.state import CellState, Stale

HEAD = """# JSON files

`python -m tools.docs.json_files > docs/json.md` writes this page from `gt_bench/records/`. After reading it you can
read records and results in a program. In Python, `from_disk` of a model checks a parsed file, and `model_json_schema`
returns its JSON schema. Unknown keys are refused. [JSON output](json_output.md) describes what commands print.

Numbers are in raw units: a percentage is a fraction. A shipped file, `suites/SUITE/records/DATASET/ROW.json.gz`, has
the keys `schema` (2), `result`, `records`, `trials` and `origins`.
"""
MODELS: dict[type[BaseModel], str] = {
    RunRecord: "`store/../DIGEST/record.json`, and each of `records` and `trials` of a shipped file",
    RunResult: "`deterministic`",
    Digests: "`deterministic.digests`",
    Measured: "`measured`",
    Environment: "`measured.environment`; other keys are packages with their versions",
    Session: "each of `measured.sessions`",
    StaticReport: "`measured.static`",
    ComputedBy: "each of `measured.encodings`",
    StoredPredictions: "`predictions`",
    CellResult: "`results/SUITE/DATASET/ROW.json`, and `result` of a shipped file",
    Reduction: "each of `reduced` that is no text",
    SearchSummary: "`search`",
    EnsembleSummary: "`search.ensemble`",
    Imported: "`imported`",
    Origins: "`origins` of a shipped file",
    CellState: "`state` of a row",
    Stale: "each of `stale`",
}


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the meaning of each attribute, from the docstrings of a model and its bases."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        _, _, attributes = (base.__doc__ or "").partition("Attributes:\n")
        name = ""
        for line in attributes.splitlines():
            indent, text = len(line) - len(line.lstrip()), line.strip()
            if indent == 8 and text:
                name, _, first = text.partition(": ")
                found[name] = first
            elif text:
                found[name] += f" {text}"
    return found


def keys(model: type[BaseModel]) -> list[tuple[str, str, str]]:
    """Returns key, type and meaning of each field of a model.

    Raises:
        KeyError: a field has no meaning.
    """
    schema, said = model.model_json_schema(by_alias=True), meanings(model)
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    models = {one.__name__ for one in MODELS}
    return [
        (key, type_of(one, schema.get("$defs", {}), models), said[names[key]].removesuffix("."))
        for key, one in schema["properties"].items()
    ]


def type_of(schema: dict[str, Any], definitions: dict[str, Any], models: set[str]) -> str:
    """Returns a JSON schema as text: `int or null`, `list of str`."""
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        return name if name in models else type_of(definitions[name], definitions, models)
    if "anyOf" in schema:
        parts = dict.fromkeys(type_of(one, definitions, models) for one in schema["anyOf"])
        numbers = {"int", "float"} <= parts.keys()
        return " or ".join(["number"] * numbers + [one for one in parts if not numbers or one not in ("int", "float")])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            return f"list of {type_of(schema['items'], definitions, models)}"
        case "object":
            values = schema.get("additionalProperties")
            return (
                f"object of {type_of(values, definitions, models)}" if isinstance(values, dict) and values else "object"
            )
        case "string":
            return "sha256" if "pattern" in schema else "str"
        case kind:
            return {"integer": "int", "number": "float", "boolean": "bool"}.get(str(kind), str(kind or "any"))


def page() -> str:
    """Returns the page as Markdown."""
    parts = [HEAD]
    for model, where in MODELS.items():
        parts.append(f"\n## {model.__name__}\n\n{where[0].upper()}{where[1:]}.\n\n|key|type|meaning|\n|---|---|---|\n")
        parts += [f"|`{key}`|{kind}|{meaning}|\n" for key, kind, meaning in keys(model)]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
