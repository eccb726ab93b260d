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

from gt_bench.schemas import Settings
from gt_bench.utils.errors import UserError, nearest
from gt_bench.utils.io import UnfitFile, read_text

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)
Positive = Annotated[int, Field(gt=0)]


class RecipeError(UserError, ValueError):
    """A recipe or params.yaml is invalid; the message names the file, the key and what to do.

    Attributes:
        keys: the dotted keys of the mistakes that a schema found.
    """

    keys: tuple[str, ...] = ()


class ExactNumbers(BaseModel):
    """A schema in which a number is a number: neither text, nor true or false, nor 32.0 for a whole number."""

    @field_validator("*", mode="before")
    @classmethod
    def _exact(cls, value: object, info: ValidationInfo) -> object:
        field = cls.model_fields[info.field_name or ""]
        kinds, converts = _kinds(field.annotation), any(isinstance(one, BeforeValidator) for one in field.metadata)
        if (int in kinds or float in kinds) and not converts and not _fits(field.annotation, value):
            raise ValueError("expected a number" if float in kinds else "expected a whole number")
        return value


def _fits(annotation: Any, value: object) -> bool:
    """Returns whether each number that an annotation names is one in the value; pydantic checks everything else."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return any(isinstance(one, BeforeValidator) for one in inner[1:]) or _fits(inner[0], value)
    if origin in (Union, UnionType):
        return any(_fits(one, value) for one in inner)
    if origin is Literal:
        return value in inner
    if annotation in (int, float):
        return isinstance(value, int | annotation) and not isinstance(value, bool)
    if annotation in (bool, str, NoneType):
        return isinstance(value, annotation)
    if isinstance(value, dict) and origin in (dict, Mapping):
        return all(_fits(inner[1], one) for one in value.values())
    if isinstance(value, list | tuple) and origin in (list, tuple, Sequence):
        kinds = inner if origin is tuple and ... not in inner else inner[:1] * len(value)
        return all(map(_fits, kinds, value))
    return True


def _kinds(annotation: Any) -> list[Any]:
    """Returns the types that an annotation names, without those of nested sections."""
    inner = [kind for one in getattr(annotation, "__args__", ()) for kind in _kinds(one)]
    return inner or [annotation]


class Strict(ExactNumbers):
    """An immutable schema that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


MAX_BYTES, MAX_DEPTH, MAX_NODES = 4 << 20, 50, 200_000  # of a file, with aliases expanded
MAX_SHOWN = 200  # characters of a value in a message
# replacements of tags whose values have no unique digest
_WORDS = {"binary": "text", "omap": "a mapping", "pairs": "a list", "set": "a list"}
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Fault(yaml.YAMLError):
    """An error with its position, on one line."""

    def __init__(self, problem: str, mark: "yaml.Mark | None" = None):
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        super().__init__(f"{where}{problem}")


class _Loader(_Safe):
    """Loader of safe YAML: rejects duplicate keys, reads 1e-5 as a number, and accepts only JSON values and dates.

    Numbers are decimal. YAML 1.1 reads 010 as 8, and 1:30 as 90.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _Fault("expected text as a key, not a list or a mapping", key.start_mark)
            if key.tag == "tag:yaml.org,2002:merge":
                raise _Fault(
                    "merge keys (<<) are not supported; repeat the keys, or use `base:` in a recipe", key.start_mark
                )
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        repeated = sorted({str(k) for k in keys if keys.count(k) > 1})
        if repeated:
            raise _Fault(f"duplicate key {shown(repeated[0])}", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Returns a decimal integer of at most 64 bits, because storage formats do not support more."""
        if not re.fullmatch(r"[-+]?(0|[1-9][0-9_]*)", node.value):
            raise _Fault(f"expected a decimal number, or text in quotes (given: {shown(node.value)})", node.start_mark)
        if len(node.value) <= 100 and -(2**63) <= (value := super().construct_yaml_int(node)) < 2**63:
            return value
        raise _Fault(f"expected an integer of at most 64 bits (given: {shown(node.value)})", node.start_mark)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Returns a decimal number."""
        if ":" in node.value:
            raise _Fault(f"expected a decimal number, or text in quotes (given: {shown(node.value)})", node.start_mark)
        return super().construct_yaml_float(node)

    def refuse(self, node: yaml.Node) -> None:
        """Raises the error of an unsupported tag."""
        name = node.tag.removeprefix("tag:yaml.org,2002:")
        raise _Fault(f"tag !!{name} is not supported; use {_WORDS[name]}", node.start_mark)


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
        yaml.YAMLError: the text is invalid, has duplicate keys, or exceeds the limits of this module. The message is
            one line.
    """
    try:
        _check_bounds(text)
        return yaml.load(text, _Loader)
    except _Fault:
        raise
    except yaml.MarkedYAMLError as error:
        raise _Fault(
            " ".join((error.problem or error.context or "").split())[: 2 * MAX_SHOWN],
            error.problem_mark or error.context_mark,
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        raise _Fault(" ".join(str(error).split())) from None
    except (
        LookupError,
        AttributeError,
        TypeError,
    ) as error:  # raised by PyYAML for a value with an explicit tag, such as !!bool maybe
        raise _Fault(f"a value does not have the type of its tag ({error}); remove the tag (!!)") from None


def _check_bounds(text: str) -> None:
    """Checks nesting and size before anything is constructed.

    Deep nesting crashes the parser, and aliases of aliases grow exponentially.
    """
    nodes, sizes = 0, dict[str, int]()
    above: list[tuple[str | None, int]] = []  # open collections: anchor, nodes before it
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in above):
                raise _Fault(f"the alias *{shown(event.anchor)[1:-1]} contains itself", event.start_mark)
            nodes += sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            above.append((event.anchor, nodes))
            nodes += 1
            if len(above) > MAX_DEPTH:
                raise _Fault(f"more than {MAX_DEPTH} levels of nesting", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = above.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if nodes > MAX_NODES:
            raise _Fault(
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
        raise RecipeError(f"{path}: no such file") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
    except UnfitFile as error:
        raise RecipeError(f"{path}: {error}; expected a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: invalid YAML: {error}") from None
    if not isinstance(content, dict):
        found = {type(None): "nothing", list: "a list"}.get(type(content), "a single value")
        raise RecipeError(f"{path}: expected a mapping of keys, found {found}")
    return content


def validated(schema: type[Model], content: Settings, path: str, prefix: str = "") -> Model:
    """Validates content.

    Args:
        schema: pydantic model.
        content: the content.
        path: file, for messages.
        prefix: prefix of keys in messages.

    Returns:
        `content` as an instance of `schema`.

    Raises:
        RecipeError: the content is invalid. The message has a line per mistake.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        problems = [(_place(problem, prefix), problem) for problem in error.errors()]
        lines = [f"{path}: {_explain(problem, where, schema)}" for where, problem in problems]
        refused = RecipeError("\n".join(lines))
        refused.keys = tuple(dict.fromkeys(where.rstrip(".") for where, _ in problems))
        raise refused from None


def _place(problem: "ErrorDetails", prefix: str) -> str:
    parts = [str(p) if len(str(p)) <= MAX_SHOWN else shown(p) for p in problem["loc"] if not _is_tag(p)]
    return prefix + ".".join(parts)


def _explain(problem: "ErrorDetails", where: str, schema: type[BaseModel]) -> str:
    if problem["type"] == "extra_forbidden":
        known = _fields_at(schema, problem["loc"][:-1])
        return f"unknown key {shown(where)}{nearest(str(problem['loc'][-1]), known)}; known here: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"key {where!r} is missing"
    if problem["type"] == "too_short":
        return f"{where}: is empty; expected at least one entry"
    given = "" if isinstance(problem["input"], dict) else f" (given: {shown(problem['input'])})"
    reason = (
        "expected a mapping of keys"
        if problem["type"] in ("model_type", "dict_type")
        else problem["msg"].removeprefix("Value error, ")
    )
    where = where.rstrip(".")
    return f"{where}: {reason}{given}" if where else f"{reason}{given}"


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
