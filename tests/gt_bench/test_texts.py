"""texts.txt has the texts that users see most: messages of errors and the ends of commands.

A change of wording is a change of that file, which is written again by

    UPDATE_TEXTS=1 python -m pytest tests/gt_bench/test_texts.py

Other tests assert classes, fields, numbers and files.
"""

import contextlib
import errno
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import seeds_in, values_in
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.data.registry import get_spec
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.forecasting.counted import announcement
from gt_bench.pipeline.reproduce import after
from gt_bench.runtime.exit_status import status_of
from gt_bench.store.run_store import Store
from gt_bench.utils.io import write_json
from tests.conftest import ROOT
from tests.gt_bench.cells import ET, make_record
from tests.gt_bench.conftest import RECIPE, write_yaml
from tests.gt_bench.custom_data import write_web
from tests.gt_bench.data.custom.inputs import frames, read, source_of

TEXTS, UPDATE = Path(__file__).with_name("texts.txt"), "UPDATE_TEXTS"
# lines about single runs, epochs and machines
PROGRESS = re.compile(r"^#|MLflow|busy|load")
CELL = {"cell": "small/web/mlp", "dataset": "web", "model": "mlp", "settings": "recipes"}
GRID = {"datasets": ["web"], "suites": ["small"], "cells": {"small-web-mlp": CELL}}
MANY = list(range(30))


def recipe(**changes: Any) -> Callable[[], object]:
    """A recipe with these changes is read and checked against its model."""

    def work() -> None:
        path = write_yaml(Path(), {k: v for k, v in {**RECIPE, **changes}.items() if v is not None})
        check_model(load_recipe(path), path)

    return work


def text_of_recipe(text: str) -> Callable[[], object]:
    return lambda: load_recipe(write_yaml(Path(), text))


def params(**changes: Any) -> Callable[[], object]:
    return lambda: load_grid(write_yaml(Path(), {**GRID, **changes}, "params.yaml"))


def data(declared: dict | None = None, **columns: Any) -> Callable[[], object]:
    return lambda: read(source_of("csv", frames(**columns), Path()), **declared or {})


def table(text: str) -> Callable[[], object]:
    def work() -> None:
        Path("nodes.csv").write_text(text)
        Path("edges.csv").write_text("source,target\n0,0\n")
        read(Path())

    return work


def damaged(content: object) -> Callable[[], object]:
    def work() -> None:
        store, record = Store(Path("store")), make_record(ET, 0)
        write_json(store.put(record), content)
        store.get(record.digest)

    return work


ERRORS: dict[str, Callable[[], object]] = {
    "recipe: unknown key": recipe(epocs=3),
    "recipe: a missing key": recipe(epochs=None),
    "recipe: another type": recipe(optimizer={"lr": "0.1"}),
    "recipe: out of range": recipe(epochs=0),
    "recipe: two keys exclude each other": recipe(batch={"graphs": 2, "parts": 3}),
    "recipe: selection on test data": recipe(select="test"),
    "recipe: an origin of an unknown form": recipe(origin={"optimizer.lr": "Table 4"}),
    "recipe: an empty search space": recipe(search={"trials": 2, "space": {}}),
    "recipe: duplicate key": text_of_recipe("epochs: 1\nepochs: 2"),
    "recipe: no YAML": text_of_recipe("model: ["),
    "recipe: no mapping": text_of_recipe("- 1"),
    "recipe: a file that does not exist": lambda: load_recipe(Path("absent.yaml")),
    "recipe: a base that does not exist": text_of_recipe("base: mian.yaml"),
    "recipe: unknown model": recipe(model={"name": "mlpp"}),
    "recipe: unknown argument of a model": recipe(model={"name": "mlp", "hiden_dim": 8}),
    "recipe: another type of an argument": recipe(model={"name": "mlp", "hidden_dim": "wide"}),
    "recipe: a model of another level": lambda: check_fit(Recipe(**RECIPE), "pair", "web"),
    "recipe: an encoding that the model does not use": lambda: check_fit(
        Recipe(**RECIPE, encodings={"rrwp": {"steps": 3}}), "node", "web"
    ),
    "params: unknown key": params(run={"devise": "cpu"}),
    "params: limits of nothing": params(limits={"smal": {"seeds": 1}}),
    "name: unknown suite": lambda: load_grid(ROOT / "params.yaml").chosen(["embeded"]),
    "name: unknown cell": lambda: load_grid(ROOT / "params.yaml").chosen(["embedded/chains/mpl"]),
    "name: unknown dataset": lambda: get_spec("cornel"),
    "name: unknown metric": data({"task": "node-classification", "metric": "acuracy"}),
    "option: --set": lambda: values_in("--set", ["lr"], "optimizer.lr=0.01"),
    "option: --seeds": lambda: seeds_in("3-1"),
    "data: no folder": lambda: read(Path("absent")),
    "data: no target": data(label=None),
    "data: a column that may be an identifier": data(account=[10_000 + 7 * i for i in MANY]),
    "data: words among numbers": data(f=["unknown", "1"] * 15),
    "data: a decimal comma": data(f=["0,5", "1,5"] * 15),
    "data: many whole numbers as a target": data(label=MANY),
    "data: one class": data(label=1),
    "data: a node that does not exist": data(edges_source=[1000 + i for i in MANY] * 2),
    "data: edges that count from 1": data(
        id=None, edges_source=[1 + i % 28 for i in MANY] * 2, edges_target=[2 + i % 28 for i in MANY] * 2
    ),
    "data: one reverse is missing": data(
        edges_source=[*range(30), *range(1, 30), 5], edges_target=[*range(1, 30), 0, *range(29), 20]
    ),
    "data: a column of --drop that does not exist": data({"drop": "sise"}),
    "data: a split that has another column": data({"split": "temporal:yaer"}, time=MANY),
    "data: a split of another kind": data({"split": "temporary:year"}),
    "data: a row of another length": table("id,f,label\n0,0.5\n"),
    "data: no header": table("0,0.5,1\n1,0.5,2\n"),
    "store: a damaged record": damaged([]),
    "store: the record of another run": damaged(make_record(ET, 1).to_disk()),
}


def announced() -> None:
    grid = load_grid()
    print(*announcement("small", list(grid.cells.values()), grid), sep="\n")


def ended(command: str, status: int) -> Callable[[], object]:
    """What `reproduce` says of a stage that ended so."""
    return lambda: print(after(command, status, load_grid()))


def raises(error: BaseException) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


COMMANDS: dict[str, str | Callable[[], object]] = {
    "reproduce: first lines": announced,
    "reproduce: a killed cell": ended("python -m stages.train small/web/mlp", -9),
    "reproduce: a stage that failed": ended("python -m stages.encode web", 1),
    "a full disk": raises(OSError(errno.ENOSPC, "No space left on device")),
    "Ctrl-C": raises(KeyboardInterrupt()),
    "a file that cannot be written": raises(PermissionError(errno.EACCES, "Permission denied", "results/a.json")),
    "a package that is missing": raises(ModuleNotFoundError("No module named 'psycopg'", name="psycopg")),
    "train": "train small/web/mlp",
    "train, stored": "train small/web/mlp",
    "board, one suite": "board small",
    "board, one cell": "board small/web/mlp",
    "list": "list",
    "try": "try mlp ./papers --seeds 0,1 --set epochs=3",
    "try, again": "try mlp papers --seeds 0,1 --set epochs=3",
    "compare": "compare small/web/mlp tried/papers/mlp-epochs-3",
    "board of a name with a typing error": "board smal",
    "try of a model with a typing error": "try mpl papers",
    "try of data with a typing error": "try mlp paper",
}


def plain(text: str) -> str:
    """The text without what differs between machines: folders, times, sizes, digests and measured values."""
    text = text.replace(str(Path.cwd()), "FOLDER").replace(str(ROOT), "ROOT")
    text = re.sub(r"\d[\d.,]*(?= ?(s|min|ms|h|MiB|GiB|KiB)\b)", "#", text)
    text = re.sub(r"\d+\.\d+", "#.#", text)
    text = re.sub(r"epoch \d+", "epoch #", text)
    text = re.sub(r"((?:[\w@.+-]+, ){5})(?:[\w@.+-]+, )+(?!or )[\w@.+-]+", r"\1...", text)  # models, datasets, keys
    text = re.sub(r"[0-9a-f]{64}", "DIGEST", text).replace("/16/DIGEST", "/../DIGEST")
    text = re.sub(r" {2,}", "  ", re.sub("─+", "───", text))  # columns are as wide as their values
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def printed(work: Callable[[], object]) -> str:
    """What a command prints that does this."""
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
        status_of(lambda: work() and None)
    return plain(output.getvalue())


def command(words: str) -> Callable[[], object]:
    """A command of `gt-bench`, without its progress."""

    def work() -> None:
        done = CliRunner().invoke(app, words.split())
        print(*(line for line in done.output.splitlines() if not PROGRESS.search(line)), sep="\n")
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception

    return work


def texts(project: Any, write_data: Callable[[Path], Path]) -> dict[str, str]:
    """All texts by name; the working directory is a project with one cell."""
    found = {}
    for number, (name, work) in enumerate(ERRORS.items()):
        folder = Path(f"errors/{number}")
        folder.mkdir(parents=True)
        with contextlib.chdir(folder):
            found[name] = printed(work)
        assert found[name].startswith("error: "), name
    project.recipe()
    write_data(Path("papers"))
    return found | {name: printed(command(work) if isinstance(work, str) else work) for name, work in COMMANDS.items()}


@pytest.mark.slow
def test_texts_are_those_of_the_file(project, monkeypatch):
    monkeypatch.setattr("gt_bench.utils.terminal.console", lambda: Console(width=100))
    text = "".join(f"## {name}\n{text}\n\n" for name, text in texts(project, write_web).items())
    if os.environ.get(UPDATE):
        TEXTS.write_text(text)
    assert text == TEXTS.read_text(), f"if this is meant: {UPDATE}=1 python -m pytest tests/gt_bench/test_texts.py"
