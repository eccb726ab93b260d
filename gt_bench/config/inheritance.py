"""Inheritance of recipes: `base:` names another recipe, and the file contains only the differences.

    base: ppgt.yaml                      # relative to this file; a base may have a base
    drop: [model.edge_vector]            # keys of the base that are removed
    model: {num_frequencies: 5}          # sections are merged key by key, everything else is replaced
    origin: {model.num_frequencies: "printed: PPGT, Table 12"}

Keys that describe one row (`gt_bench.config.origins.ROW`) are not inherited. A file whose name begins with "_" is only
a base and not a cell of the grid. Digests are computed from the resolved content, so that splitting a recipe into base
and rest does not change them.
"""

from pathlib import Path

from gt_bench.config.origins import ROW, ancestors
from gt_bench.config.schema import RecipeError, nearest, read_yaml
from gt_bench.utils.json_types import Settings
from gt_bench.utils.paths import place

# mappings that are replaced and not merged
WHOLE = frozenset({"published", "search"})


def read_recipe(path: str | Path) -> tuple[Settings, list[str]]:
    """Reads a recipe and its bases.

    Returns:
        (resolved content, dotted keys of values that differ from the base and have no `origin`). The origin in the base
            describes the value of the base, so that these keys need another one.

    Raises:
        RecipeError: a file is invalid.
    """
    return _resolved(Path(path), ())


def bases_of(path: str | Path) -> list[Path]:
    """Returns the files that a recipe starts from, the nearest first.

    Raises:
        RecipeError: a file is invalid.
    """
    bases: list[Path] = []
    while (base := read_yaml(path).get("base")) is not None:
        path = _place(Path(path), base)
        if path in bases:
            raise RecipeError(f"circular inheritance: {', '.join(map(str, bases))}", file=path, place="base")
        bases.append(path)
    return bases


def _resolved(path: Path, above: tuple[Path, ...]) -> tuple[Settings, list[str]]:
    content = read_yaml(path)
    if "base" not in content:
        if "drop" in content:
            raise RecipeError("expected a key `base`", file=path, place="drop")
        return content, []
    place = _place(path, content.pop("base"))
    if place in (path, *above):
        raise RecipeError(f"circular inheritance: {', '.join(map(str, (*above, path)))}", file=path, place="base")
    if not place.is_file():
        hint = nearest(place.name, [p.name for p in place.parent.glob("*.yaml")])
        raise RecipeError(f"{place} not found{hint}", file=path, place="base", value=place)
    inherited, without_origin = _resolved(place, (*above, path))
    for key in ROW:
        inherited.pop(key, None)
    origins = inherited.get("origin", {})
    inherited["origin"] = {key: text for key, text in origins.items() if key.split(".")[0] not in ROW}
    for key in _words(content.pop("drop", []), path):
        if not _dropped(inherited, key):
            raise RecipeError(f"{place} has no {key!r:.200}", file=path, place="drop", value=key)
    if inherited["origin"]:
        own = set(content.get("origin") or {})
        without_origin = without_origin + [
            key for key in _changed(content, inherited) if not {"all", *ancestors(key)} & own
        ]
    merged = _merged(inherited, content)
    if not merged["origin"]:
        del merged["origin"]
    return merged, without_origin


def _place(path: Path, base: object) -> Path:
    if not isinstance(base, str) or not base.endswith(".yaml"):
        problem = f"expected the path of a .yaml file, relative to this one (given: {base!r:.200})"
        raise RecipeError(problem, file=path, place="base", value=base)
    parts: list[str] = []
    for part in (path.parent / base).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return place(Path(*parts))  # a recipe of another suite may be an installed one


def _words(value: object, path: Path) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        problem = f"expected a list of dotted keys (given: {value!r:.200})"
        raise RecipeError(problem, file=path, place="drop", value=value)
    return value


def _dropped(content: Settings, key: str) -> bool:
    """Deletes a dotted key, and returns whether there was one. A key of `origin` contains dots itself."""
    if key.startswith("origin."):
        section, last = content["origin"], key.removeprefix("origin.")
    else:
        *sections, last = key.split(".")
        section = content
        for name in sections:
            section = section.get(name) if isinstance(section, dict) else None
    if not isinstance(section, dict) or last not in section:
        return False
    del section[last]
    return True


def _changed(content: Settings, inherited: object, prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key, value in content.items():
        if not prefix and key in ("origin", *ROW):
            continue
        before = inherited.get(key, _ABSENT) if isinstance(inherited, dict) else _ABSENT
        if isinstance(value, dict) and value and isinstance(before, dict):
            keys += _changed(value, before, f"{prefix}{key}.")
        elif value != before:
            keys.append(f"{prefix}{key}")
    return keys


_ABSENT = object()


def _merged(base: Settings, content: Settings, top: bool = True) -> Settings:
    merged = dict(base)
    for key, value in content.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict) and not (top and key in WHOLE)
        merged[key] = _merged(merged[key], value, False) if both else value
    return merged
