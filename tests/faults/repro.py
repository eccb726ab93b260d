"""`kill -9` of `dvc repro` at random moments, and two at once; then `make reproduce`, which restores all files.

The result must be identical to an undisturbed one, and no run may be computed twice. DVC is the real one, with the
dvc.yaml of this repository and the miniature of world.py. A stage is a fork of DVC's process instead of `python -m
stages.NAME`, which would need seconds to import; like a new program it inherits no open file.
"""

import contextlib
import importlib
import logging
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.scheduling.reproduce import repro, reproduce
from gt_bench.store.run_store import Store
from gt_bench.utils.dvc import keep_in_memory
from tests.faults.kills import watch
from tests.faults.world import STAGES, Child, World, cell, status, tree

ROOT = Path(__file__).parents[2]
GENERATED = (
    "datasets",
    "suites",
    "cells",
    "searches",
)  # of params.yaml: what `python -m gt_bench.pipeline.grid` writes into grid.yaml
DVC_S = (".dvc/", "dvc.lock", "stages/dvc.lock", ".gitignore")


@dataclass
class Tally:
    """`repaired`: broken lock files; `refused`: commands that DVC refused because two ran at once."""

    tried: int = 0
    killed: int = 0
    rounds: int = 0
    repaired: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def project(world: World, folder: Path) -> Path:
    """The miniature project in the form that DVC needs, before its first stage."""
    shutil.copytree(world.folder / "before" / "state", folder)
    settings = yaml.safe_load((folder / "params.yaml").read_text())
    grid = {name: settings.pop(name) for name in GENERATED} | {"finetunes": {}}
    (folder / "params.yaml").write_text(yaml.safe_dump(settings | {"limits": {}}))
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
    for name in ("dvc.yaml", "stages/dvc.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text(
        "[core]\n    analytics = false\n    check_update = false\n    no_scm = true\n    site_cache_dir = "
        f"{folder}/.dvc/site\n"
    )
    return folder


def notes(folder: Path, what: str) -> Path:
    """Files next to the project: `computed` lists each computed run, `stages` each stage with its process.

    `memory` replaces /dev/shm.
    """
    return folder.with_name(f"{folder.name}.{what}")


def note(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def work_of(command: str) -> Callable[[], Any]:
    """Do what `python -m stages.NAME ...` does, in the miniature."""
    _, _, module, *names = command.split()
    name = module.removeprefix("stages.")
    if name == "state":  # as its command does
        memory = notes(Path.cwd(), "memory")
        memory.mkdir(exist_ok=True)
        keep_in_memory(memory=memory)
    of_cells = {"tune": tune_cell, "train": train_cell}
    return cell(of_cells[name], *names) if name in of_cells else STAGES[name].work


def under_dvc(
    work: Callable[[], int], until: int | None = None, after: float = 0.0, group: bool = True
) -> Callable[[], None]:
    """Run `work` as leader of a process group, with forked stages.

    With `until` it is killed at the given change to a file, or that number of seconds after it, with its group or
    alone. If it ends before, a note has the number of changes.
    """

    def kill() -> None:
        os.killpg(0, signal.SIGKILL) if group else os.kill(os.getpid(), signal.SIGKILL)

    def forked(_: str, command: str, cwd: str, **__: Any) -> None:
        from dvc.stage.exceptions import StageCmdFailedError

        stage = os.fork()
        if stage == 0:
            os.closerange(3, 4096)
            os.chdir(cwd)
            folder, put = Path.cwd(), Store.put
            note(notes(folder, "stages"), f"{os.getpid()} {command}")

            def counted(store: Store, record: Any) -> Path:
                path = put(store, record)
                note(notes(folder, "computed"), record["digest"])
                return path

            Store.put = counted
            os._exit(status(work_of(command)))
        if code := os.waitstatus_to_exitcode(os.waitpid(stage, 0)[1]):
            raise StageCmdFailedError(command, code)

    def doing() -> None:
        import dvc.stage.run

        os.setpgid(0, 0)
        logging.getLogger("dvc").handlers.clear()  # of the process that this is a fork of
        dvc.stage.run._run = forked
        folder = Path.cwd()
        seen = watch(until, threading.Timer(after, kill).start if after else kill)
        ended = work()
        notes(folder, "changes").write_text(str(seen[0]))
        sys.exit(ended)

    return doing


def plain() -> int:
    return repro("leaderboard@small")[0]


def reproduce_all() -> int:
    return reproduce("small")


def held(folder: Path) -> dict[str, Any]:
    """Return all files of the project and the state of DVC; searches without trials whose process was killed."""
    found: dict[str, Any] = {name: content for name, content in tree(folder).items() if not name.startswith(DVC_S)}
    for name in ("dvc.lock", "stages/dvc.lock"):
        stages = yaml.safe_load((folder / name).read_text())["stages"]
        for stage, known in stages.items():
            known["outs"] = [
                out for out in known["outs"] if not out["path"].startswith("tuned/") or not out["path"].endswith(".csv")
            ]
            found[f"{name}: {stage}"] = known
    return found


def wait_for(folder: Path, command: str = "") -> None:
    """Wait until no stage of a killed `dvc repro` is alive.

    A search that is still alive would share its trials with a new one, and two workers try other values than one.
    """
    lines = notes(folder, "stages").read_text().splitlines() if notes(folder, "stages").exists() else []
    for number in [int(line.split()[0]) for line in lines if command in line]:
        with contextlib.suppress(psutil.NoSuchProcess):
            stage = psutil.Process(number)
            while stage.is_running() and stage.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)


class Repro:
    """The project, and the result of an undisturbed `dvc repro`."""

    def __init__(self, world: World):
        for name in ("dvc.cli", "dvc.repo", "dvc.stage.run"):
            importlib.import_module(name)  # so that no fork has to
        self.world, self.tally = world, Tally()
        folder = project(world, world.folder / "repro")
        start = time.monotonic()
        child = Child(under_dvc(plain, until=0), folder).end()
        assert child.status == 0, child.said
        self.seconds, self.changes = time.monotonic() - start, int(notes(folder, "changes").read_text())
        self.expected = held(folder)

    def kill(self, folder: Path, draw: random.Random) -> None:
        """`dvc repro`, killed alternately with its stage's group and alone.

        The moment is a time, a change that DVC makes to a file, or just after one, because DVC writes its files in
        place.
        """
        wait_for(folder, "stages.tune")
        number, group = self.tally.tried, self.tally.tried % 2 == 0
        self.tally.tried += 1
        if number // 2 % 3 == 0:
            child = Child(under_dvc(plain), folder)
            time.sleep(draw.uniform(0, self.seconds))
            with contextlib.suppress(ProcessLookupError):  # it has ended, or does not lead a group yet
                os.killpg(child.process.pid, signal.SIGKILL) if group else os.kill(child.process.pid, signal.SIGKILL)
        else:
            until, after = draw.randint(1, self.changes), draw.uniform(0, 0.01) if number // 2 % 3 == 2 else 0.0
            child = Child(under_dvc(plain, until, after, group), folder)
        child.end()
        assert child.status in (0, 255, -signal.SIGKILL), child.said  # 255: a lock that the one before left broken
        self.tally.killed += child.status < 0

    def two_at_once(self, folder: Path, draw: random.Random) -> None:
        """`dvc repro`, and `make reproduce` while it runs."""
        first = Child(under_dvc(plain), folder)
        time.sleep(draw.uniform(0, self.seconds))
        second = Child(under_dvc(reproduce_all), folder, f"{folder.name}-second")
        for child in (first.end(), second.end()):
            self.tally.refused += child.status != 0
            if "Traceback" in child.said or child.status < 0:
                self.tally.wrong.append(f"{folder.name}: two at once: status {child.status}: {child.said[-1500:]}")

    def reproduce_and_check(self, folder: Path) -> None:
        """Run `make reproduce` and return what is wrong afterwards."""
        wait_for(folder, "stages.tune")
        child = Child(under_dvc(reproduce_all), folder).end()
        wait_for(folder)
        self.tally.rounds += 1
        self.tally.repaired += len(re.findall(r"left it incomplete|invalid, renamed to", child.said))
        if child.status:
            self.tally.wrong.append(f"{folder.name}: make reproduce: status {child.status}: {child.said[-1500:]}")
            return
        found, computed = held(folder), Counter(notes(folder, "computed").read_text().split())
        self.tally.wrong += [
            f"{folder.name}: computed {times} times: {digest}" for digest, times in computed.items() if times > 1
        ]
        differ = sorted(
            name for name in found.keys() | self.expected.keys() if found.get(name) != self.expected.get(name)
        )
        self.tally.wrong += [f"{folder.name}: {name}" for name in differ]

    def campaign(self, kills: int, pairs: int, seed: int = 0, in_a_row: int = 2) -> Tally:
        """Kill `dvc repro` many times, with at most `in_a_row` kills before `make reproduce`; then pairs at once."""
        draw, rounds = random.Random(seed), 0
        while self.tally.killed < kills or rounds < pairs:
            folder = project(self.world, self.world.folder / f"repro-{self.tally.rounds}")
            if self.tally.killed < kills:
                for _ in range(min(in_a_row, kills - self.tally.killed)):
                    self.kill(folder, draw)
            else:
                self.two_at_once(folder, draw)
                rounds += 1
            self.reproduce_and_check(folder)
            shutil.rmtree(folder)
        return self.tally
