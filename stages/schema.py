"""How a YAML file is held against a schema: every mistake is a RecipeError that names the file, the key and the nearest valid one."""

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stages.contents import Settings
from stages.errors import UserError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)
Positive = Annotated[int, Field(gt=0)]


class RecipeError(UserError, ValueError):
    """A recipe or params.yaml that cannot be used; the message names the file, the key and what to do."""


class Strict(BaseModel):
    """An immutable schema that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):
    """Safe YAML in which a repeated key is an error, and 1e-5 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        repeated = sorted({str(k) for k in keys if keys.count(k) > 1})
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"key {repeated[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+0123456789."))


def parse_yaml(text: str) -> Any:
    """Raises yaml.YAMLError, for a repeated key too."""
    try:
        return yaml.load(text, _Loader)
    except ValueError as error:  # a date that no calendar has
        raise yaml.YAMLError(str(error)) from None


def read_yaml(path: str | Path) -> Settings:
    """Raises RecipeError for a file that is absent, cannot be read, is no YAML, or no mapping."""
    try:
        content = parse_yaml(Path(path).read_text())
    except FileNotFoundError:
        raise RecipeError(f"{path}: there is no such file") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
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
    where = prefix + ".".join(str(p) for p in problem["loc"] if not _is_tag(p))
    if problem["type"] == "extra_forbidden":
        known = _fields_at(schema, problem["loc"][:-1])
        return f"unknown key {where!r}{nearest(str(problem['loc'][-1]), known)}; known here: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"key {where!r} is missing"
    if problem["type"] == "too_short":
        return f"{where}: is empty; it needs at least one entry"
    given = "" if isinstance(problem["input"], dict) else f" (given: {problem['input']!r})"
    said = "expected a mapping of keys" if problem["type"] in ("model_type", "dict_type") else problem["msg"].removeprefix("Value error, ")
    return f"{where.rstrip('.') or 'the file'}: {said}{given}"


def _fields_at(schema: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    models = [schema]
    for step in location:
        if _is_tag(step):
            models = [model for model in models if tag_of(model) == step] or models
        else:
            inside = [m for model in models if step in model.model_fields for m in _models(model.model_fields[step].annotation)]
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
