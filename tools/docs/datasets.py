"""Generates the tables of docs/datasets.md: available datasets, encodings, unavailable datasets, and known flaws.

    dvc repro download encode 2>&1 | tee LOG
    python -m tools.docs.datasets data LOG          updates docs/datasets.md between its marks

Statistics and sizes are read from the packed and encoded files in the first folder, seconds from the output of the
stages.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from safetensors import safe_open

from gt_bench.data.packed import PackedHeader
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.format import file_size
from gt_bench.utils.io import write_bytes

PAGE = Path(__file__).parents[2] / "docs" / "datasets.md"


def prepared(data: Path, log: str) -> str:
    """Returns the table of the datasets that are packed in data/packed."""
    seconds = dict(re.findall(r"^(\S+): packed in ([\d.]+) s;", log, re.MULTILINE))
    rows = []
    for name, spec in catalog().items():
        header = _header(data, name)
        if header is None:
            continue
        found = header.statistics
        dims = [header.in_dim if isinstance(header.in_dim, int) else len(header.in_dim)]
        raw = file_size(sum(file.bytes or 0 for file in spec.files)) if spec.files else "generated"
        counts = [f"{found[key]:,}" for key in ("graphs", "nodes", "edges")]
        rows.append(
            [_name(spec), spec.task, spec.metric, *counts, *dims, found.get("classes", found.get("targets", "")),
            header.num_splits or "",
             raw, file_size(header.data_bytes), seconds.get(name, "")]
        )  # fmt: skip
    columns = [
        "dataset",
        "task",
        "metric",
        "graphs",
        "nodes",
        "edges",
        "features",
        "classes or targets",
        "splits",
        "raw",
        "packed",
        "s",
    ]
    return table(columns, rows)


def encoded(data: Path, log: str) -> str:
    """Returns the table of the encodings in data/encodings, stored and on the fly."""
    seconds = {
        (name, key): took
        for name, key, took in re.findall(r"^(\S+): (\S+): [\d,]+ graphs, [\d.,]+ MiB, ([\d.]+) s$", log, re.MULTILINE)
    }
    rows = []
    for name in catalog():
        if _header(data, name) is None:
            continue
        folder = data / "encodings" / name
        for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
            key = path.name.removesuffix(path.suffix)
            if path.suffix == ".json":
                rows.append(
                    [f"`{name}`", f"`{key}`", "", "on the fly: " + json.loads(path.read_bytes())["on_the_fly"], ""]
                )
                continue
            with safe_open(path, framework="np") as file:
                arrays = json.loads(file.metadata()["header"])["arrays"]
                shapes = {array: file.get_slice(array).get_shape() for array in arrays}
            shown = ", ".join(f"{array} {' x '.join(f'{n:,}' for n in shape)}" for array, shape in shapes.items())
            rows.append([f"`{name}`", f"`{key}`", shown, file_size(path.stat().st_size), seconds.get((name, key), "")])
    return table(["dataset", "encoding", "arrays", "on disk", "s"], rows)


def absent(data: Path) -> str:
    """Returns the table of the datasets that are not packed in data/packed."""
    rows = []
    for name, spec in catalog().items():
        if _header(data, name) is not None:
            continue
        how = "downloaded from its host if it is reachable"
        if any(file.sha256 is None for file in spec.files):
            how += "; digest pinned on first use"
        if spec.needs:
            how += f"; needs {', '.join(spec.needs)}"
        files = ", ".join(f"`{file.path}`" for file in spec.files[:2]) + (" ..." if len(spec.files) > 2 else "")
        rows.append([_name(spec), spec.task, spec.metric, files, how])
    return table(["dataset", "task", "metric", "raw files", "how to get it"], rows)


def flaws() -> str:
    """Returns every note of the catalog once, with its datasets."""
    about: dict[str, list[str]] = {}
    for name, spec in catalog().items():
        for note in ((f"**derived**: {spec.derived}",) if spec.derived else ()) + spec.notes:
            about.setdefault(note, []).append(f"`{name}`")
    return "\n".join(f"- {', '.join(names)}: {note}" for note, names in about.items())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def fill(page: str, tables: dict[str, str]) -> str:
    """Replaces the text between `<!-- NAME -->` and `<!-- end -->` for each name in `tables`.

    Raises:
        KeyError: a mark is missing.
    """
    for name, text in tables.items():
        mark = f"<!-- {name} -->\n"
        if mark not in page:
            raise KeyError(f"{PAGE}: the mark {mark.strip()} is missing")
        before, _, rest = page.partition(mark)
        page = f"{before}{mark}{text}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


def _name(spec: DatasetSpec) -> str:
    return f"`{spec.name}`" + (" (derived)" if spec.derived else "")


def _header(data: Path, name: str) -> PackedHeader | None:
    path = data / "packed" / name / "header.json"
    return PackedHeader.model_validate_json(path.read_bytes()) if path.exists() else None


def main(arguments: Sequence[str]) -> int:
    """Rewrites the tables of docs/datasets.md.

    Args:
        arguments: folder of datasets, and file with the output of the stages.

    Returns:
        The exit status.
    """
    if len(arguments) != 2:
        print(__doc__)
        return 2
    data, log = Path(arguments[0]), Path(arguments[1]).read_text(encoding="utf-8")
    tables = {"prepared": prepared(data, log), "encoded": encoded(data, log), "absent": absent(data), "flaws": flaws()}
    write_bytes(PAGE, fill(PAGE.read_text(encoding="utf-8"), tables).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
