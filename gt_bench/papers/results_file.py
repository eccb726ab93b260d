"""The files of published numbers: suites/PAPER/results.yaml and flags.yaml."""

import os
from functools import lru_cache
from pathlib import Path

import yaml

from gt_bench.config.suite import load_suite
from gt_bench.utils.errors import UserError, nearest
from gt_bench.utils.json_types import Settings
from gt_bench.utils.paths import MANIFEST, suite_folder, suite_folders

RESULTS, FLAGS = "results.yaml", "flags.yaml"  # in the folder of a suite
# required keys of an entry of results.yaml, and defaults of optional keys
ENTRY_KEYS = ("table", "method", "dataset", "metric", "direction", "unit", "printed", "mean")
ENTRY_DEFAULTS: Settings = {"split": "test", "std": None, "runs": None, "oom": False, "own": False}


class PublishedError(UserError, LookupError):
    """There is no such published number, or several. `place` is the key of the reference that is wrong."""


def papers() -> dict[str, Path]:
    """Returns the folder of each suite with published numbers, by name.

    Raises:
        SuiteError: two suites have the same name.
    """
    return {name: folder for name, folder in suite_folders().items() if os.path.exists(f"{folder}/{RESULTS}")}


def files_state() -> tuple[object, ...]:
    """Returns what changes with the files of published numbers and the current folder: a key for caches.

    Raises:
        SuiteError: two suites have the same name.
    """
    return tuple(state_of(folder) for folder in papers().values())


def state_of(folder: Path) -> tuple[object, ...]:
    """Returns the same for the folder of a paper."""
    files = (folder / name for name in (RESULTS, FLAGS, MANIFEST))
    return (folder.absolute(), *(_stamp(path) if path.exists() else None for path in files))


def paper_titles() -> dict[str, str]:
    """Returns the title of each paper.

    Raises:
        RecipeError: a suite.yaml is invalid.
    """
    return {paper: load_suite(paper).title for paper in papers()}


def label_of(suite: str) -> str:
    """Returns the short name of a suite for readers.

    Raises:
        RecipeError: its suite.yaml is invalid.
    """
    return load_suite(suite).label or suite


def read_entries(paper: str) -> list[Settings]:
    """Returns the entries of a paper's results.yaml, each with the name of the paper.

    Raises:
        PublishedError: the paper or the file does not exist, or the file is invalid.
    """
    path = folder_of(paper) / RESULTS
    return _read(paper, path, _stamp(path), ENTRY_KEYS)


def folder_of(paper: str) -> Path:
    """Returns the folder of a paper.

    Raises:
        PublishedError: the paper does not exist, or has no results.yaml.
    """
    if (folder := suite_folder(paper)) is None:
        raise PublishedError(f"no paper {paper!r}{hint(paper, list(papers()))}", place="paper", value=paper)
    if not (folder / RESULTS).exists():
        raise PublishedError(f"no {RESULTS}, and therefore no published numbers to compare with", file=folder)
    return folder


def read_flags(paper: str) -> list[Settings]:
    """Returns the entries of a paper's flags.yaml, each with the name of the paper.

    Raises:
        PublishedError: the file is invalid.
    """
    path = folder_of(paper) / FLAGS
    return _read(paper, path, _stamp(path), ("flag",)) if path.exists() else []


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _read(paper: str, path: Path, _stamp: tuple[int, int], keys: tuple[str, ...]) -> list[Settings]:
    """Reads a list of mappings with these keys.

    Raises:
        PublishedError: the file is invalid.
    """
    try:
        # 300 KB: 0.1 s with libyaml, 1.5 s without
        content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        entries = content["results"] if path.name == RESULTS else content or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("not a list of mappings")
        for number, entry in enumerate(entries, 1):
            if missing := [key for key in keys if key not in entry]:
                raise ValueError(f"entry {number}: {', '.join(missing)} is missing")
            if "paper" in entry:
                raise ValueError(f"entry {number}: unexpected key `paper`; the name of the folder is the paper")
    except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        remedy = f"fix it, or restore it: git checkout {path}"
        raise PublishedError(f"invalid ({reason})", file=path, remedy=remedy) from None
    if path.name != RESULTS:
        return [{"paper": paper, **entry} for entry in entries]
    return [{"paper": paper, "canonical_method": entry["method"], **ENTRY_DEFAULTS, **entry} for entry in entries]


def hint(value: str, known: list[str]) -> str:
    """Returns the nearest known values, or the first ones, for the end of a message."""
    return nearest(value, known) or f"; known: {', '.join(map(repr, known[:12]))}"
