"""How a YAML file is held against a schema: every mistake is a RecipeError that names the file, the key and the nearest valid one."""

import copy
import difflib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from gt_bench.schemas import Settings
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import UnfitFile, read_text

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)
Positive = Annotated[int, Field(gt=0)]


class RecipeError(UserError, ValueError):
    """A recipe or params.yaml that cannot be used; the message names the file, the key and what to do."""


class NoBooleans(BaseModel):
    """A schema in which true and false are no numbers, which they are to Python."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: object, info: ValidationInfo) -> object:
        kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
        only_numbers = (int in kinds or float in kinds) and not any(kind in (bool, Any, object) for kind in kinds)
        if only_numbers and any(type(one) is bool for one in _leaves(value)):
            raise ValueError("expected a number")
        return value


def _kinds(annotation: Any) -> list[Any]:
    """The types that an annotation names, those of a section's own keys left out."""
    inner = [kind for one in getattr(annotation, "__args__", ()) for kind in _kinds(one)]
    return inner or [annotation]


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    else:
        yield value


class Strict(NoBooleans):
    """An immutable schema that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


MOST_BYTES, MOST_DEPTH, MOST_NODES = 4 << 20, 50, 200_000  # of a file, aliases replaced by what they stand for
MOST_SHOWN = 200  # characters of a value in a message
_WORDS = {
    "binary": "text",
    "omap": "a mapping",
    "pairs": "a list",
    "set": "a list",
}  # instead of a tag that no digest can hold
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Fault(yaml.YAMLError):
    """One line: where, and what is wrong."""

    def __init__(self, problem: str, mark: "yaml.Mark | None" = None):
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        super().__init__(f"{where}{problem}")


class _Loader(_Safe):
    """Safe YAML in which a repeated key is an error, 1e-5 is a number, and a value is what JSON can hold (and a date)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _Fault("a key is a word, not a list or a mapping", key.start_mark)
            if key.tag == "tag:yaml.org,2002:merge":
                raise _Fault(
                    "merge keys (<<) are not supported; write the keys out, or start a recipe from another one by base:",
                    key.start_mark,
                )
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        repeated = sorted({str(k) for k in keys if keys.count(k) > 1})
        if repeated:
            raise _Fault(f"key {shown(repeated[0])} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Of 64 bits: more is held by nothing that a value goes through."""
        if len(node.value) <= 100 and -(2**63) <= (value := super().construct_yaml_int(node)) < 2**63:
            return value
        raise _Fault(f"expected a whole number of at most 64 bits (given: {shown(node.value)})", node.start_mark)

    def refuse(self, node: yaml.Node) -> None:
        """Raises the error of a tag that is not accepted."""
        name = node.tag.removeprefix("tag:yaml.org,2002:")
        raise _Fault(f"tag !!{name} is not accepted; write {_WORDS[name]}", node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
for _tag in _WORDS:
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.refuse)

_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


def parse_yaml(text: str) -> Any:
    """Raises yaml.YAMLError of one line, for a repeated key too, and for what is nested or repeated beyond the bounds of this module."""
    try:
        _check_bounds(text)
        return yaml.load(text, _Loader)
    except _Fault:
        raise
    except yaml.MarkedYAMLError as error:
        raise _Fault(
            " ".join((error.problem or error.context or "").split())[: 2 * MOST_SHOWN],
            error.problem_mark or error.context_mark,
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # the latter: a date that no calendar has
        raise _Fault(" ".join(str(error).split())) from None
    except (
        LookupError,
        AttributeError,
        TypeError,
    ) as error:  # PyYAML's own of a value below an explicit tag, such as !!bool maybe
        raise _Fault(f"a value that is not of the type of its tag ({error}); leave the tag (!!) out") from None


def _check_bounds(text: str) -> None:
    """Before anything is built of it: deep nesting ends the process in the parser, and aliases of aliases grow without end."""
    nodes, sizes = 0, dict[str, int]()
    above: list[tuple[str | None, int]] = []  # the collections that are open: anchor, nodes before it
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in above):
                raise _Fault(f"*{shown(event.anchor)[1:-1]} is part of what it stands for", event.start_mark)
            nodes += sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            above.append((event.anchor, nodes))
            nodes += 1
            if len(above) > MOST_DEPTH:
                raise _Fault(f"nested more than {MOST_DEPTH} deep", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = above.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if nodes > MOST_NODES:
            raise _Fault(
                f"more than {MOST_NODES:,} values, those counted that aliases (*name) repeat", event.start_mark
            )


def shown(value: object) -> str:
    """A value for a message: on one line, without control characters, of at most MOST_SHOWN characters."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 40]}... ({len(text):,} characters)"


@lru_cache(maxsize=4096)
def _parsed(text: str) -> object:
    return parse_yaml(text)


def read_yaml(path: str | Path) -> Settings:
    """Raises RecipeError for a file that is absent, cannot be read, is no YAML, or no mapping."""
    try:
        content = copy.deepcopy(_parsed(read_text(path, MOST_BYTES)))  # a base is read by many recipes
    except FileNotFoundError:
        raise RecipeError(f"{path}: there is no such file") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
    except UnfitFile as error:
        raise RecipeError(f"{path}: {error}; expected a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not readable as YAML: {error}") from None
    if not isinstance(content, dict):
        found = {type(None): "nothing", list: "a list"}.get(type(content), "a single value")
        raise RecipeError(f"{path}: expected a mapping of keys, found {found}")
    return content


def validated(schema: type[Model], content: Settings, path: str, prefix: str = "") -> Model:
    """`content` as an instance of `schema`. Raises RecipeError with a line per mistake: `path`, the key below `prefix`, and the nearest
    valid one."""
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        lines = [_explain(problem, schema, prefix) for problem in error.errors()]
        raise RecipeError("\n".join(f"{path}: {line}" for line in lines)) from None


def _explain(problem: "ErrorDetails", schema: type[BaseModel], prefix: str) -> str:
    where = prefix + ".".join(
        str(p) if len(str(p)) <= MOST_SHOWN else shown(p) for p in problem["loc"] if not _is_tag(p)
    )
    if problem["type"] == "extra_forbidden":
        known = _fields_at(schema, problem["loc"][:-1])
        return f"unknown key {shown(where)}{nearest(str(problem['loc'][-1]), known)}; known here: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"key {where!r} is missing"
    if problem["type"] == "too_short":
        return f"{where}: is empty; it needs at least one entry"
    given = "" if isinstance(problem["input"], dict) else f" (given: {shown(problem['input'])})"
    said = (
        "expected a mapping of keys"
        if problem["type"] in ("model_type", "dict_type")
        else problem["msg"].removeprefix("Value error, ")
    )
    return f"{where.rstrip('.') or 'the file'}: {said}{given}"


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
    """The mark of one schema of several that may be at a place (pydantic's Tag): it takes a step in the location of a mistake, which
    nobody wrote and nobody is shown."""
    return f"<{model.__name__}>"


def _is_tag(step: object) -> bool:
    return isinstance(step, str) and step.startswith("<")


def nearest(name: str, known: list[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
