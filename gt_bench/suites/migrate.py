"""Migration of a workspace of the former layout (recipes/, records/, golden/) into suites/."""

import json
import re
from pathlib import Path

from gt_bench.experiment.golden_values import VALUES
from gt_bench.experiment.modified_code import CHECKED, save_checked
from gt_bench.utils.io import read_bytes, write_bytes
from gt_bench.utils.paths import MANIFEST, SUITES, SuiteError, recipe_file, record_file

OLD = ("recipes", "records", "golden", "published")


def migrate() -> list[str]:
    """Moves the files of the current folder. The function is idempotent.

    Files are not overwritten: if a file already exists at its new place with other contents, nothing is moved. Computed
    files (store/, results/, tuned/, mlruns/) stay at their places, where they are still found.

    Returns:
        What was done, one line each.

    Raises:
        SuiteError: files exist at both places and differ.
        WriteError: the disk is full.
    """
    moves = _moves()
    clashes = [(old, new) for old, (new, content) in moves.items() if new.exists() and read_bytes(new) != content]
    if clashes:
        lines = [f"{old} and {new} differ; keep one of them" for old, new in clashes]
        raise SuiteError("\n".join([*lines, "nothing was moved"]))
    counts: dict[str, int] = {}
    for old, (new, content) in moves.items():
        write_bytes(new, content)
        old.unlink()
        kind = f"{old.parts[0]}/ -> {SUITES}/{new.parts[1]}/"
        counts[kind] = counts.get(kind, 0) + 1
    lines = [f"{kind}: {count} file{'s' if count > 1 else ''}" for kind, count in counts.items()]
    checked = Path("golden/checked.json")
    if checked.exists():
        save_checked(json.loads(checked.read_text(encoding="utf-8")))
        checked.unlink()
        lines.append(f"{checked} -> {SUITES}/SUITE/{CHECKED}")
    for suite in sorted({new.parts[1] for new, _ in moves.values()}):
        manifest = SUITES / suite / MANIFEST
        if not manifest.exists():
            write_bytes(manifest, f"title: {suite}\n".encode())
            lines.append(f"{manifest}: written; give it a title")
    for name in OLD:
        lines += _left(Path(name))
    return lines


def _moves() -> dict[Path, tuple[Path, bytes]]:
    """Returns {old file: (new file, its content)}."""
    found: dict[Path, tuple[Path, bytes]] = {}
    for path in sorted(Path("recipes").glob("*/*/*.yaml")):
        cell = path.relative_to("recipes").with_suffix("").as_posix()
        found[path] = recipe_file(cell), _with_base(path)
    for path in sorted(Path("recipes").glob("*/_*.yaml")):
        found[path] = SUITES / path.parent.name / "recipes" / path.name, _with_base(path)
    for path in sorted(Path("records").glob("*/*/*.json.gz")):
        cell = path.relative_to("records").as_posix().removesuffix(".json.gz")
        found[path] = record_file(cell), read_bytes(path)
    for path in sorted(Path("golden").glob("*.json")):
        if path.name != "checked.json":
            found[path] = SUITES / path.stem / VALUES, read_bytes(path)
    return found


def _with_base(path: Path) -> bytes:
    """Returns the recipe with the new path of a base in another suite."""
    text = read_bytes(path).decode()
    up = r"\.\./\.\./" if len(path.parts) == 4 else r"\.\./"
    new = "../../../" if len(path.parts) == 4 else "../../"
    return re.sub(rf"(?m)^base: {up}([a-z0-9][a-z0-9.-]*)/", rf"base: {new}\1/recipes/", text).encode()


def _left(folder: Path) -> list[str]:
    """Removes empty folders, and returns a line on remaining files."""
    if not folder.is_dir():
        return []
    for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()
        return []
    count = sum(path.is_file() for path in folder.rglob("*"))
    return [f"{folder}/: {count} file{'s' if count > 1 else ''} that no command reads; delete or keep them"]
