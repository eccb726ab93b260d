"""Recipes that start from another one: `base:` names it, and the file says only what differs.

    base: ppgt.yaml                      # relative to this file; a base may have a base
    drop: [model.edge_vector]            # keys of the base that this recipe does not have
    model: {num_frequencies: 5}          # sections are merged key by key, everything else is replaced
    origin: {model.num_frequencies: "printed: PPGT, Table 12"}

What describes one row alone (`ROW`) is never inherited. A file whose name begins with "_" is a base and no cell of the grid. Digests are of
the resolved content: a recipe and its base together decide what the one long file decided.
"""

from collections.abc import Mapping
from pathlib import Path

from gt_bench.config.schema import RecipeError, nearest, read_yaml
from gt_bench.schemas import Settings
from gt_bench.utils.paths import place

ROW = ("published", "parameters", "reduced", "search", "start", "keep_weights", "predictions")
# mappings that are replaced whole
WHOLE = frozenset({"published", "search"})


def read_recipe(path: str | Path) -> tuple[Settings, list[str]]:
    """The content of a recipe with that of its bases, as one long file would have it; and the dotted keys of values that differ from the
    base's and have no origin of their own, as they must: the base's speaks of the base's value. Raises RecipeError."""
    return _resolved(Path(path), ())


def bases_of(path: str | Path) -> list[Path]:
    """The files that a recipe starts from, the nearest first. Raises RecipeError."""
    found: list[Path] = []
    while (base := read_yaml(path).get("base")) is not None:
        path = _place(Path(path), base)
        if path in found:
            raise RecipeError(f"{path}: base: these recipes start from each other: {', '.join(map(str, found))}")
        found.append(path)
    return found


def _resolved(path: Path, above: tuple[Path, ...]) -> tuple[Settings, list[str]]:
    content = read_yaml(path)
    if "base" not in content:
        if "drop" in content:
            raise RecipeError(f"{path}: drop: there is no base to drop anything of")
        return content, []
    place = _place(path, content.pop("base"))
    if place in (path, *above):
        raise RecipeError(f"{path}: base: these recipes start from each other: {', '.join(map(str, (*above, path)))}")
    if not place.is_file():
        raise RecipeError(
            f"{path}: base: there is no {place}{nearest(place.name, [p.name for p in place.parent.glob('*.yaml')])}"
        )
    inherited, lacking = _resolved(place, (*above, path))
    for key in ROW:
        inherited.pop(key, None)
    origins = inherited.get("origin", {})
    inherited["origin"] = {key: text for key, text in origins.items() if key.split(".")[0] not in ROW}
    for key in _words(content.pop("drop", []), path):
        _drop(inherited, key, f"{path}: drop: {place}")
    if inherited["origin"]:
        own = set(content.get("origin") or {})
        lacking = lacking + [key for key in _changed(content, inherited) if not {"all", *ancestors(key)} & own]
    merged = _merged(inherited, content)
    if not merged["origin"]:
        del merged["origin"]
    return merged, lacking


def _place(path: Path, base: object) -> Path:
    if not isinstance(base, str) or not base.endswith(".yaml"):
        raise RecipeError(
            f"{path}: base: expected the path of a .yaml file, relative to this one (given: {base!r:.200})"
        )
    parts: list[str] = []
    for part in (path.parent / base).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return place(Path(*parts))  # a recipe of another suite may be an installed one


def _words(value: object, path: Path) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise RecipeError(f"{path}: drop: expected a list of dotted keys (given: {value!r:.200})")
    return value


def _drop(content: Settings, key: str, where: str) -> None:
    """Deletes a dotted key; one of `origin` is itself dotted."""
    if key.startswith("origin."):
        section, last = content["origin"], key.removeprefix("origin.")
    else:
        *sections, last = key.split(".")
        section = content
        for name in sections:
            section = section.get(name) if isinstance(section, dict) else None
    if not isinstance(section, dict) or last not in section:
        raise RecipeError(f"{where} has no {key!r:.200}")
    del section[last]


def ancestors(key: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` of the dotted key `a.b.c`."""
    parts = key.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def origin_of(key: str, origin: Mapping[str, str]) -> str | None:
    """What `origin` of a recipe says of the value of a dotted key: at the key, at the nearest section that it is in, or at `all`, which is not
    said of what describes the row alone; None where it says nothing."""
    names = [*reversed(ancestors(key)), *(["all"] if key.split(".")[0] not in ROW else [])]
    return next((origin[name] for name in names if name in origin), None)


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
