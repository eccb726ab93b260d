"""Use a GPU that is available for minutes: checks, profiles, the most valuable runs, one archive.

    python -m tools.gpu --minutes 13
    python -m tools.gpu --minutes 13 --dry-run
    python -m tools.gpu --minutes 4 --device cpu --small      # try everything without a GPU

Run it in the root of a checkout; docs/gpu_session.md explains it. Exit status: 0 if all sections ended, 1 if one
failed or there is no GPU, 2 if an argument, a package or a file is missing, 143 after SIGTERM.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tools.gpu import archive, budget, machine
from tools.gpu.budget import SECTIONS, Section
from tools.gpu.machine import ROOT, Machine

FOLDER = Path(__file__).parent
PLAN, SMALL_PLAN = FOLDER / "queue.yaml", FOLDER / "queue_small.yaml"


class Refused(Exception):
    """An argument, a package or a file is missing. The message names it and the remedy."""


class Stopped(BaseException):
    """SIGTERM or Ctrl-C arrived."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m tools.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--minutes", type=float, required=True, help="of the whole command, the archive included")
    found.add_argument("--dry-run", action="store_true", help="show sections, times and what is missing")
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    found.add_argument("--small", action="store_true", help="two tiny cells instead of the plan")
    found.add_argument("--out", type=Path, default=Path("gpu-session"), help="new folder for results")
    found.add_argument(
        "--only", nargs="+", choices=[s.name for s in SECTIONS], metavar="SECTION", help="of checks, steps, queue"
    )
    found.add_argument("--plan", type=Path, help="of the queue; default: tools/gpu/queue.yaml")
    found.add_argument("--jobs", type=int, help="runs side by side; default: by cores and device memory")
    found.add_argument("--cells", nargs="+", metavar="CELL", help="of the section steps")
    found.add_argument("--wheels", type=Path, default=Path("wheels"), help="folder with wheels of missing packages")
    found.add_argument("--authors", type=Path, help="folder with the authors' modules (docs/gpu_session.md)")
    found.add_argument("--limit-mib", type=float, default=archive.LIMIT_MIB, help="most MiB of the archive")
    return found


def check(given: argparse.Namespace) -> None:
    """Check the arguments.

    Raises:
        Refused: one is invalid.
    """
    if not given.minutes > 0:
        raise Refused(f"--minutes {given.minutes:g}: expected more than 0, the minutes that the GPU is available")
    if given.jobs is not None and given.jobs < 1:
        raise Refused(f"--jobs {given.jobs}: expected 1 or more, the number of runs side by side")
    if not given.limit_mib >= 1:
        raise Refused(f"--limit-mib {given.limit_mib:g}: expected 1 or more")
    if given.authors is not None and not given.authors.is_dir():
        raise Refused(f"--authors {given.authors}: folder not found")
    if given.plan is not None and not given.plan.is_file():
        raise Refused(f"--plan {given.plan}: file not found")
    if not Path("params.yaml").exists():
        raise Refused(f"{Path.cwd()} has no params.yaml; run the command in the root of a checkout")
    if not given.dry_run and given.out.exists() and any(given.out.iterdir()):
        raise Refused(f"--out {given.out}: the folder is not empty; move its results away or give another folder")


def packages(wheels: Path, target: Path, dry: bool) -> list[Path]:
    """Install wheels of packages that are missing.

    Args:
        wheels: folder with wheels; it need not exist.
        target: folder to install them into.
        dry: whether nothing is installed.

    Returns:
        Folders for PYTHONPATH.

    Raises:
        Refused: a package is neither installed nor carried, or a wheel cannot be installed.
    """
    names = machine.needed()
    if not machine.missing(names):
        return []
    carried = machine.carried(wheels)
    folders = []
    if carried and not dry:
        try:
            machine.install(carried, target)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise Refused(f"{wheels}: {error}") from None
        folders = [target]
    absent = machine.missing(names, folders)
    if dry:
        found = {path.name.split("-")[0].replace("_", "-").lower() for path in carried}
        absent = [text for text in absent if text.split(">")[0].replace("_", "-").lower() not in found]
    if absent:
        raise Refused(
            f"not installed, and no wheel in {wheels}/: {', '.join(absent)}; where there is a network, run "
            f"`python -m pip download --no-deps --only-binary=:all: --python-version "
            f"{sys.version_info.major}.{sys.version_info.minor} -d {wheels} {' '.join(map(repr, absent))}` and carry "
            "the folder"
        )
    return folders


def environment(folders: Sequence[Path], device: str) -> dict[str, str]:
    """Return the environment of the sections."""
    paths = [*(str(folder.resolve()) for folder in folders), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    return found | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})


def queue_plan(given: argparse.Namespace) -> Path:
    """Return the plan file of the queue."""
    return given.plan or (SMALL_PLAN if given.small else PLAN)


def command(section: Section, given: argparse.Namespace, found: Machine, seconds: float) -> list[str]:
    """Return the command of a section."""
    common = ["--out", str(given.out.resolve())]
    if section.name == "queue":
        # runs need a moment to write checkpoints, and the queue to collect records
        until = time.time() + max(0.5 * seconds, seconds - 3 * budget.GRACE_SECONDS)
        jobs = given.jobs or found.jobs
        more = [*common, "--plan", str(queue_plan(given)), "--until", f"{until:.1f}", "--jobs", str(jobs)]
        return [sys.executable, "-m", "tools.gpu.runs", *more]
    small = ["--small"] if given.small else []
    more = [*common, "--device", given.device, *small]
    if section.name == "steps":
        more += ["--authors", str(given.authors.resolve())] if given.authors else []
        more += ["--cells", *given.cells] if given.cells else []
    return [sys.executable, "-m", f"tools.gpu.{section.name}", *more]


def run(arguments: Sequence[str], log: Path, seconds: float, variables: dict[str, str]) -> str:
    """Run a command with a hard limit; its output goes to `log`.

    Returns:
        How it ended: "ok", "status N", "killed by signal N" or "cut at its limit".
    """
    with log.open("ab") as file:
        process = subprocess.Popen(
            list(arguments), stdout=file, stderr=subprocess.STDOUT, env=variables, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return "cut at its limit"
        except BaseException:
            _end(process)
            raise
        finally:
            _signal(process, signal.SIGKILL)  # what a crashed section left running
    return "ok" if status == 0 else f"status {status}" if status > 0 else f"killed by signal {-status}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask all processes of a section to stop; kill those that do not."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(budget.GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def plan_text(sections: Sequence[Section], given: argparse.Namespace, found: Machine | None) -> list[str]:
    """Return what would run, one line each."""
    total, lines = 60 * given.minutes, []
    for section, seconds in budget.forecast(sections, total):
        what = f"at most {seconds:.0f} s" if seconds else "not started: the budget is too short"
        lines.append(f"{section.name}: {section.what}; {what}")
    lines.append(
        f"archive: {given.out / archive.NAME}.tar.gz, at most {given.limit_mib:g} MiB; {budget.reserve(total):.0f} s"
    )
    if found is not None:
        lines.append(f"queue: {given.jobs or found.jobs} runs side by side, {os.path.relpath(queue_plan(given))}")
    return lines


def session(given: argparse.Namespace) -> int:
    """Do what the command line asks for; return the exit status.

    Raises:
        Refused: an argument, a package or a file is missing.
    """
    began = time.monotonic()
    check(given)
    sections = [section for section in SECTIONS if given.only is None or section.name in given.only]
    target = given.out / "site"
    if not given.dry_run:
        given.out.mkdir(parents=True, exist_ok=True)
    folders = packages(given.wheels, target, given.dry_run)
    variables = environment(folders, given.device)
    try:
        found = machine.probe(variables)
    except RuntimeError as error:
        raise Refused(str(error)) from None
    name = found.gpu or f"no GPU, {found.cores} cores"
    print(f"{name}; torch {found.torch}, triton {found.triton}", flush=True)
    for remark in found.remarks():
        print(f"note: {remark}", flush=True)
    for line in plan_text(sections, given, found):
        print(line, flush=True)
    _check_cells(given, variables)
    if given.device == "cuda" and found.gpu is None:
        print(
            "torch sees no GPU: nothing was run. With a GPU the sections above would run; --device cpu --small tries "
            "them on the CPU",
            file=sys.stderr,
        )
        return 1
    if given.dry_run:
        return 0
    (given.out / "machine.json").write_text(json.dumps(machine.as_json(found), indent=1) + "\n", encoding="utf-8")
    total = 60 * given.minutes
    status = 0
    try:
        for section in sections:
            seconds = budget.limit(section, total, total - (time.monotonic() - began))
            if not seconds:
                print(f"{section.name}: not started: the budget is too short", flush=True)
                status = 1
                continue
            print(f"{section.name}: at most {seconds:.0f} s", flush=True)
            start = time.monotonic()
            ended = run(command(section, given, found, seconds), given.out / f"{section.name}.log", seconds, variables)
            print(f"{section.name}: {ended}, {time.monotonic() - start:.0f} s", flush=True)
            status |= ended != "ok"
            if section.name == "queue" and ended != "ok":
                _collect(given, variables, budget.collection(total - (time.monotonic() - began)))
            archive.pack(given.out, given.limit_mib)  # a cut later loses nothing of this section
    except Stopped:  # whoever stops the command does not wait for the rest of the budget
        _collect(given, variables, budget.PACK_SECONDS)
        status = 143
    path, dropped = archive.pack(given.out, given.limit_mib)
    for line in dropped:
        print(f"not in the archive: {line}", flush=True)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB after {time.monotonic() - began:.0f} s", flush=True)
    print(f"at home: gt-bench store import --records {path}", flush=True)
    return status


def _check_cells(given: argparse.Namespace, variables: dict[str, str]) -> None:
    """Show which data of the plan are missing.

    Raises:
        Refused: a cell of the plan or of --cells does not exist.
    """
    arguments = ["--out", str(given.out), "--plan", str(queue_plan(given)), "--check", *(given.cells or ())]
    command = [sys.executable, "-m", "tools.gpu.runs", *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise Refused((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1].removeprefix("error: "))


def _collect(given: argparse.Namespace, variables: dict[str, str], seconds: float) -> None:
    """Export the records of the queue within `seconds`, also after it crashed."""
    arguments = [sys.executable, "-m", "tools.gpu.runs", "--out", str(given.out.resolve())]
    arguments += ["--plan", str(queue_plan(given)), "--collect"]
    ended = run(arguments, given.out / "collect.log", seconds, variables)
    if ended != "ok":
        print(f"records: not collected: {ended}; see {given.out / 'collect.log'}; they are in store/", flush=True)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


def main() -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        return session(given)
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped:
        return 143


if __name__ == "__main__":
    sys.exit(main())
