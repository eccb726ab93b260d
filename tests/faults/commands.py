"""kill -9 of `gt-bench try`, `work` and `reproduce`, which start further processes; then the same command again."""

import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from gt_bench.pipeline.train import train_cell
from tests.conftest import ROOT
from tests.faults.world import PLAIN, RECIPES, SEARCHED, STAGES, World, cell, do, started, tree

STAGE = f"{sys.executable} -m tests.faults.stage"
NO_CACHE = {"cache": False}
DVC = {
    "encode": {"foreach": ["mini"], "do": {"cmd": "true"}},
    "tune": {"foreach": {SEARCHED.replace("/", "-"): SEARCHED}, "do": {"cmd": "true"}},
    "train": {
        "foreach": {name.replace("/", "-"): name for name in RECIPES},
        "do": {"cmd": f"{STAGE} train ${{item}}", "outs": [{"results/${item}.json": NO_CACHE}]},
    },
    "leaderboard": {
        "foreach": ["small"],
        "do": {
            "cmd": f"{STAGE} leaderboard",
            "deps": ["results/${item}"],
            "outs": [{"reports/${item}.json": NO_CACHE}],
        },
    },
}


def gt_bench(*arguments: str) -> None:
    from gt_bench.cli.app import app

    sys.exit(app(arguments, standalone_mode=False))


def reproduce() -> None:
    """Reproduce the suite by DVC; two cells train side by side."""
    grid = yaml.safe_load(Path("params.yaml").read_text())
    grid["run"]["parallel"] = 2
    Path("params.yaml").write_text(yaml.safe_dump(grid))
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": DVC}))
    Path(".dvc").mkdir(exist_ok=True)
    Path(".dvc/config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    os.environ["PYTHONPATH"] = str(ROOT)  # of `STAGE`
    gt_bench("reproduce", "small")


def stages_of_plain() -> None:
    """Do the stages of the cell without a search."""
    for stage in ("download", "encode"):
        STAGES[stage].work()
    cell(train_cell, PLAIN)()


@dataclass(frozen=True)
class Command:
    """`before`: it starts in the project before this stage; `like`: it makes the same files as the stages up to this.

    Without `like`, its files are compared with those of an undisturbed run of the command, or of `plainly`, which makes
    the same files without further processes.
    """

    work: Callable[[], None]
    before: str
    like: str | None = None
    plainly: Callable[[], None] | None = None


COMMANDS = {
    "try": Command(lambda: gt_bench("try", "gcn", "mini", "--epochs", "4", "--seeds", "0-1"), "download"),
    "work": Command(lambda: gt_bench("work", PLAIN), "download", plainly=stages_of_plain),
    "reproduce": Command(reproduce, "train", like="leaderboard"),
}


def made(files: dict[str, str]) -> dict[str, str]:
    """Return the files that commands make: records, results and the board.

    Not the forecasts, which a command that begins before the data are there makes for other keys.
    """
    folders = ("store/", "results/", "reports/small.")
    return {
        name: digest for name, digest in files.items() if name.startswith(folders) and name != "store/forecasts.json"
    }


def undisturbed(world: World, name: str) -> dict[str, str]:
    command = COMMANDS[name]
    if command.like:
        return made(world.after[command.like])
    folder = world.fresh(command.before, f"{name}-undisturbed")
    child = do(command.plainly or command.work, folder)
    assert child.status == 0, child.said
    return made(tree(folder))


def kill(world: World, name: str, kills: int, seed: int = 0) -> list[str]:
    """Kill a command when a random one of its files is written, then run it to its end, several times.

    A moment in seconds would be after the end on a fast machine, and before the first file on a slow one.

    Returns:
        The files that differ from those of an undisturbed run, and the finished runs that were computed again.
    """
    command, draw, differ = COMMANDS[name], random.Random(f"{name} {seed}"), []
    expected = undisturbed(world, name)
    for number in range(kills):
        folder = world.fresh(command.before, f"{name}-{number}")
        written = draw.choice(sorted(path for path in expected if not (folder / path).exists()))
        child = started(command.work, folder)
        while child.is_alive() and not (folder / written).exists():
            time.sleep(0.005)
        assert child.is_alive(), f"{name}: ended without {written}: {child.said}"
        child.kill()
        finished = {path: path.stat().st_mtime_ns for path in folder.glob("store/??/*/record.json")}
        child = do(command.work, folder)
        assert child.status == 0, f"{name}, killed at {written}: {child.said}"
        files = made(tree(folder))
        wrong = {path for path in files.keys() | expected.keys() if files.get(path) != expected.get(path)}
        wrong |= {f"{path} again" for path, stamp in finished.items() if path.stat().st_mtime_ns != stamp}
        differ += [f"{name}-{number}: {path}, killed at {written}" for path in sorted(wrong)]
        shutil.rmtree(folder)
    return differ
