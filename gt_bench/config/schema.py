"""Validation of YAML files by pydantic schemas.

Every mistake is a RecipeError that names the file, the key and the nearest valid name.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from gt_bench.utils.errors import UserError, nearest
from gt_bench.utils.io import UnfitFile, read_text
from gt_bench.utils.json_types import Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)
Positive = Annotated[int, Field(gt=0)]


class RecipeError(UserError, ValueError):
    """A recipe or params.yaml is invalid. `place` is the dotted key."""


class ExactNumbers(BaseModel):
    """A schema in which a number is a number: neither text, nor true or false, nor 32.0 for a whole number."""

    @field_validator("*", mode="before")
    @classmethod
    def _exact(cls, value: object, info: ValidationInfo) -> object:
        field = cls.model_fields[info.field_name or ""]
        kinds, converts = _kinds(field.annotation), any(isinstance(part, BeforeValidator) for part in field.metadata)
        if (int in kinds or float in kinds) and not converts and not _fits(field.annotation, value):
            raise ValueError("expected a number" if float in kinds else "expected a whole number")
        return value


def _fits(annotation: Any, value: object) -> bool:
    """Returns whether each number that an annotation names is one in the value; pydantic checks everything else."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return any(isinstance(entry, BeforeValidator) for entry in inner[1:]) or _fits(inner[0], value)
    if origin in (Union, UnionType):
        return any(_fits(entry, value) for entry in inner)
    if origin is Literal:
        return value in inner
    if annotation in (int, float):
        return isinstance(value, int | annotation) and not isinstance(value, bool)
    if annotation in (bool, str, NoneType):
        return isinstance(value, annotation)
    if isinstance(value, dict) and origin in (dict, Mapping):
        return all(_fits(inner[1], entry) for entry in value.values())
    if isinstance(value, list | tuple) and origin in (list, tuple, Sequence):
        kinds = inner if origin is tuple and ... not in inner else inner[:1] * len(value)
        return all(map(_fits, kinds, value))
    return True


def _kinds(annotation: Any) -> list[Any]:
    """Returns the types that an annotation names, without those of nested sections."""
    inner = [kind for part in getattr(annotation, "__args__", ()) for kind in _kinds(part)]
    return inner or [annotation]


class Strict(ExactNumbers):
    """An immutable schema that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


MAX_BYTES, MAX_DEPTH, MAX_NODES = 4 << 20, 50, 200_000  # of a file, with aliases expanded
MAX_SHOWN = 200  # characters of a value in a message
# replacements of tags whose values have no unique digest
_WORDS = {"binary": "text", "omap": "a mapping", "pairs": "a list", "set": "a list"}
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _fault(problem: str, mark: "yaml.Mark | None", value: object = None) -> RecipeError:
    """Returns an error with its position, on one line."""
    place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return RecipeError(f"invalid YAML: {problem}", place=place, value=value)


class _Loader(_Safe):
    """Loader of safe YAML: rejects duplicate keys, reads 1e-5 as a number, and accepts only JSON values and dates.

    Numbers are decimal. YAML 1.1 reads 010 as 8, and 1:30 as 90.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _fault("expected text as a key, not a list or a mapping", key.start_mark)
            if key.tag == "tag:yaml.org,2002:merge":
                raise _fault(
                    "merge keys (<<) are not supported; repeat the keys, or use `base:` in a recipe", key.start_mark
                )
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        repeated = sorted({str(k) for k in keys if keys.count(k) > 1})
        if repeated:
            raise _fault(f"duplicate key {shown(repeated[0])}", node.start_mark, repeated[0])
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Returns a decimal integer of at most 64 bits, because storage formats do not support more."""
        if not re.fullmatch(r"[-+]?(0|[1-9][0-9_]*)", node.value):
            raise _not("a decimal number, or text in quotes", node)
        if len(node.value) <= 100 and -(2**63) <= (value := super().construct_yaml_int(node)) < 2**63:
            return value
        raise _not("an integer of at most 64 bits", node)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Returns a decimal number."""
        if ":" in node.value:
            raise _not("a decimal number, or text in quotes", node)
        return super().construct_yaml_float(node)

    def refuse(self, node: yaml.Node) -> None:
        """Raises the error of an unsupported tag."""
        name = node.tag.removeprefix("tag:yaml.org,2002:")
        raise _fault(f"tag !!{name} is not supported; use {_WORDS[name]}", node.start_mark)


def _not(expected: str, node: yaml.ScalarNode) -> RecipeError:
    return _fault(f"expected {expected} (given: {shown(node.value)})", node.start_mark, node.value)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
for _tag in _WORDS:
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.refuse)

_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


def parse_yaml(text: str) -> Any:
    """Parses YAML.

    Raises:
        RecipeError: the text is invalid, has duplicate keys, or exceeds the limits of this module. The message is one
            line.
    """
    try:
        _check_bounds(text)
        return yaml.load(text, _Loader)
    except RecipeError:
        raise
    except yaml.MarkedYAMLError as error:
        raise _fault(
            " ".join((error.problem or error.context or "").split())[: 2 * MAX_SHOWN],
            error.problem_mark or error.context_mark,
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        raise _fault(" ".join(str(error).split()), None) from None
    except (
        LookupError,
        AttributeError,
        TypeError,
    ) as error:  # raised by PyYAML for a value with an explicit tag, such as !!bool maybe
        raise _fault(f"a value does not have the type of its tag ({error}); remove the tag (!!)", None) from None


def _check_bounds(text: str) -> None:
    """Checks nesting and size before anything is constructed.

    Deep nesting crashes the parser, and aliases of aliases grow exponentially.
    """
    nodes, sizes = 0, dict[str, int]()
    above: list[tuple[str | None, int]] = []  # open collections: anchor, nodes before it
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in above):
                raise _fault(f"the alias *{shown(event.anchor)[1:-1]} contains itself", event.start_mark)
            nodes += sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            above.append((event.anchor, nodes))
            nodes += 1
            if len(above) > MAX_DEPTH:
                raise _fault(f"more than {MAX_DEPTH} levels of nesting", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = above.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if nodes > MAX_NODES:
            raise _fault(
                f"more than {MAX_NODES:,} values, including those that aliases (*name) repeat", event.start_mark
            )


def shown(value: object) -> str:
    """Returns a value as text for a message: one line without control characters, at most MAX_SHOWN characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 40]}... ({len(text):,} characters)"


@lru_cache(maxsize=4096)
def _parsed(text: str) -> object:
    return parse_yaml(text)


def read_yaml(path: str | Path) -> Settings:
    """Reads a YAML file that contains a mapping.

    Raises:
        RecipeError: the file does not exist, cannot be read, or is not a mapping in YAML.
    """
    try:
        content = copy.deepcopy(_parsed(read_text(path, MAX_BYTES)))  # many recipes read the same base
    except FileNotFoundError:
        raise RecipeError("no such file", file=path) from None
    except OSError as error:
        raise RecipeError(f"cannot be read ({error.strerror}); expected a YAML file", file=path) from None
    except UnfitFile as error:
        raise RecipeError(f"{error}; expected a YAML file", file=path) from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"invalid YAML: {error}", file=path) from None
    except RecipeError as error:
        raise error.within(path) from None
    if not isinstance(content, dict):
        kind = {type(None): "nothing", list: "a list"}.get(type(content), "a single value")
        raise RecipeError(f"expected a mapping of keys, found {kind}", file=path)
    return content


def validated(schema: type[Model], content: Settings, path: str | Path, prefix: str = "") -> Model:
    """Validates content.

    Args:
        schema: pydantic model.
        content: the content.
        path: file, for messages.
        prefix: prefix of keys in messages.

    Returns:
        `content` as an instance of `schema`.

    Raises:
        RecipeError: the content is invalid. The message has a line per mistake, the fields are of the first one.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first, *others = (_explained(problem, schema).within(path, prefix) for problem in error.errors())
        first.args = ("\n".join(map(str, (first, *others))),)
        raise first from None


def _explained(problem: "ErrorDetails", schema: type[BaseModel]) -> RecipeError:
    steps = [step for step in problem["loc"] if not _is_tag(step)]
    place = ".".join(str(step) if len(str(step)) <= MAX_SHOWN else shown(step) for step in steps)
    value = None if isinstance(problem["input"], dict) else problem["input"]
    if isinstance(error := problem.get("ctx", {}).get("error"), RecipeError):  # of a validator
        return error.within(place=place)
    if problem["type"] == "extra_forbidden":
        known = _fields_at(schema, problem["loc"][:-1])
        reason = f"unknown key{nearest(str(steps[-1]), known)}; known here: {', '.join(known)}"
    elif problem["type"] == "missing":
        reason = "is missing"
    elif problem["type"] == "too_short":
        least = problem["ctx"]["min_length"]
        reason = "is empty; expected at least one entry" if least == 1 else f"expected {least} entries"
        reason += f" (given: {shown(value)})" if value else ""
    else:
        kind = problem["type"] in ("model_type", "dict_type")
        reason = "expected a mapping of keys" if kind else problem["msg"].removeprefix("Value error, ")
        reason += "" if isinstance(problem["input"], dict) else f" (given: {shown(problem['input'])})"
    return RecipeError(reason, place=place, value=value)


def _fields_at(schema: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    models = [schema]
    for step in location:
        if _is_tag(step):
            models = [model for model in models if tag_of(model) == step] or models
        else:
            inside = [
                m
                for model in models
                if step in model.model_fields
                for m in _models(model.model_fields[step].annotation)
            ]
            models = inside or models
    return sorted({name for model in models for name in model.model_fields})


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]


def tag_of(model: type[BaseModel]) -> str:
    """Returns the tag of one of several alternative schemas (pydantic's Tag).

    It is part of the location of a mistake, and is removed from messages.
    """
    return f"<{model.__name__}>"


def _is_tag(step: object) -> bool:
    return isinstance(step, str) and step.startswith("<")
