"""User-supplied datasets.

A dataset is a folder of CSV, an npz file, `file.py:load`, `pyg:Planetoid/Cora`, a Data object, or one of an installed
package (entry points `gt_bench.datasets`). A dataset that has been used once is listed in datasets.yaml of the current
folder (gt_bench/data/declared.py). Every command then knows it by its name.
"""

import re
import unicodedata
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gt_bench.config.schema import validated
from gt_bench.data.custom.dataset import METRICS, check, level_of_task
from gt_bench.data.custom.edges import LINK
from gt_bench.data.custom.pyg import Graphs, graphs_of
from gt_bench.data.custom.readers import Given, Reader
from gt_bench.data.declared import (
    FILE,
    GROUP,
    USUAL_METRIC,
    Entry,
    entries,
    level_in,
    level_of,
    package_of,
    source_of,
    spec_of,
    task_in,
)
from gt_bench.data.registry import catalog
from gt_bench.schemas import Settings
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import held as held_lock
from gt_bench.utils.io import is_plain_name, make_folder, write_bytes

HELD = Path("data/own")  # where Data objects are stored as npz files
FORMS = "a dataset is a name, a folder of CSV, an npz file, file.py:load or pyg:Class/Name (docs/add_a_dataset.md)"


def named(text: str, task: str | None = None, metric: str | None = None, undirected: bool | None = None) -> str:
    """Returns the name of the dataset of `text`. A file, folder or `pyg:` name is added to datasets.yaml.

    Args:
        text: a name, or where the data are.
        task: of the data, if it differs from what the targets suggest.
        metric: of the data, if it differs from what the targets suggest.
        undirected: whether the reverse of each edge is added; None: the value in datasets.yaml, otherwise no.

    Raises:
        DatasetError: the name is taken, or the task cannot be determined from the data.
    """
    file, function = Path(text.partition(":")[0]), text.partition(":")[2] or "load"
    if not text.startswith("pyg:") and not (file.suffix in (".npz", ".py") or "/" in text or (text and file.is_dir())):
        _check_free(text)
        return text
    if text.startswith("pyg:"):
        stem = text.replace(":", "-", 1)
    elif not file.exists():
        raise DatasetError(f"{file}: there is no such file or folder; {FORMS}")
    elif file.is_file() and file.suffix not in (".npz", ".py"):
        raise DatasetError(f"{file}: a file of this kind is no dataset; {FORMS}")
    else:
        stem = file.stem if file.suffix else file.resolve().name
        stem += f"-{function}" if file.suffix == ".py" and function != "load" else ""
    ascii_only = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9.]+", "-", ascii_only.lower()).strip("-.")
    if not name:
        raise DatasetError(
            f"{text}: a dataset is called by its file or folder, in letters from a to z and digits; rename that"
        )
    return _declare(name, text, source_of(text), task, metric, undirected=undirected)


def held(
    data: Graphs,
    name: str = "own-data",
    task: str | None = None,
    metric: str | None = None,
    undirected: bool | None = None,
) -> str:
    """Stores a Data object or a list of them as data/own/NAME.npz. Returns the name. Raises DatasetError."""
    if not is_plain_name(name):
        raise DatasetError(
            f"a dataset cannot be named {name!r}: letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    graphs = graphs_of(data, name)
    if isinstance(graphs, Iterator):  # it can be read once, and is read twice below
        graphs = list(graphs)
    of_edges = task in METRICS and level_of_task(task) == "edge"
    level = "edge" if of_edges else level_of(graphs, name)
    read = "link" if task == LINK else level
    reader = Reader(Given(lambda: graphs, "", name), read, (1.0, 0.0, 0.0), 1, 0)
    blocks = list(reader.blocks())
    axes = {"edge_index": -1, "split": -1}
    arrays: dict[str, Any] = {
        key: np.concatenate([block[key] for block in blocks], axis=axes.get(key, 0))
        for key in blocks[0]
        if key != "target"
    }
    if reader.remarks:
        arrays["remarks"] = np.array(reader.remarks)
    path = HELD / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return _declare(name, str(path), path, task, metric, level, undirected)


def _check_free(name: str) -> None:
    """Raises DatasetError where an installed package names a dataset as the benchmark does."""
    for entry in entry_points(group=GROUP, name=name) if name in catalog() else ():
        what = f"the entry point {entry.name} = {entry.value!r} of {package_of(entry)} (group {GROUP})"
        raise DatasetError(
            f"{what}: the name is taken by a dataset of the benchmark; rename it in that package's pyproject.toml"
        )


def _declare(
    name: str,
    text: str,
    source: Path | Given,
    task: str | None,
    metric: str | None,
    level: str | None = None,
    undirected: bool | None = None,
) -> str:
    if name in catalog():
        raise DatasetError(
            f"{text}: its name {name!r} is taken by a dataset of the benchmark; rename the file or folder"
        )
    content = entries()
    before = content.get(name)
    if before is not None:
        known: Entry = validated(Entry, before, str(FILE), f"{name}.")
        if _place(known.source) != _place(text):
            raise DatasetError(
                f"{text}: its name {name!r} is taken in {FILE} by {known.source}; "
                "rename the file or folder, or remove that entry"
            )
        if task in (None, known.task) and metric in (None, known.metric) and undirected in (None, known.undirected):
            return name
        undirected = known.undirected if undirected is None else undirected
    chosen = task or task_in(source, level or level_in(source), text)
    entry: Settings = {"source": text, "task": chosen, "metric": metric or USUAL_METRIC.get(chosen, "accuracy")}
    entry |= {"undirected": True} if undirected else {}
    spec = spec_of(name, validated(Entry, entry, text))
    check(spec)  # what the data do not fit is not written
    with held_lock(make_folder(Path("data/.locks")) / f"{FILE}.lock"):  # another process may have added one meanwhile
        content = entries()
        write_bytes(FILE, yaml.safe_dump(content | {name: entry}, sort_keys=False, width=140).encode())
    print(
        f"{text} is the dataset {name!r} from here on: {entry['task']}, "
        f"{entry['metric']}{', undirected' if undirected else ''} ({FILE})",
        flush=True,
    )
    return name


def _place(text: str) -> tuple[str, str]:
    """Which file and function a source means, however its path is written."""
    if text.startswith("pyg:"):
        return text, ""
    file, _, function = text.partition(":")
    return str(Path(file).resolve()), function or "load"
