"""`python -m tools.gpu`: budget, machine, crashes and hangs of a section, the archive, bad input."""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from tools.gpu import __main__ as gpu
from tools.gpu import archive, budget, machine, steps
from tools.gpu.machine import Machine

H100 = Machine("2.11.0", "13.0", "NVIDIA H100 80GB HBM3", "9.0", 132, 80.0, 79.0, "3.6.0", cores=16)
NO_GPU = Machine("2.13.0", None, None, cores=2)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder like the root of a checkout; nothing is probed, and sections are what the test sets."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("limits: {}\n")
    monkeypatch.setattr(budget, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(gpu, "SECTIONS", tuple(replace(section, least=0.1) for section in budget.SECTIONS))
    monkeypatch.setattr(machine, "probe", lambda environment: H100)
    monkeypatch.setattr(gpu, "_check_cells", lambda given, variables: None)
    monkeypatch.setattr(gpu, "_collect", lambda given, variables, seconds: Path(given.out, "collected").touch())
    return tmp_path


def start(monkeypatch, programs: dict[str, str], *arguments: str) -> int:
    def command(section, given, found, seconds):
        return [sys.executable, "-c", f"out = {str(given.out)!r}\n{programs[section.name]}"]

    monkeypatch.setattr(gpu, "command", command)
    return gpu.session(gpu.parser().parse_args(arguments))


# -- the budget --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [0.1, 1, 4, 9.5, 13, 60])
def test_sections_fit_into_the_budget_with_the_archive(minutes):
    total = 60 * minutes
    seconds = [granted for _, granted in budget.forecast(budget.SECTIONS, total)]
    assert sum(seconds) <= total - budget.reserve(total) + 1e-9
    assert all(granted >= 0 for granted in seconds)
    assert seconds[-1] == max(seconds)
    assert (seconds[-1] > 0) == (minutes >= 1)


@pytest.mark.parametrize("minutes", [7, 9.5, 13, 60])
def test_a_queue_that_is_cut_is_collected_within_the_budget(minutes):
    total, grace = 60 * minutes, budget.GRACE_SECONDS
    after_queue = total - budget.limit(budget.SECTIONS[-1], total, total) - grace
    collection = budget.collection(after_queue)
    assert collection >= grace
    assert after_queue - collection - grace >= budget.ARCHIVE_SECONDS


def test_the_queue_gets_what_other_sections_leave():
    queue = budget.SECTIONS[-1]
    assert queue.name == "queue"
    assert budget.limit(queue, 780, 700) == 660
    assert budget.limit(queue, 780, 50) == 0  # 10 s would be left
    assert budget.limit(budget.SECTIONS[0], 780, 0) == 0


# -- the machine -------------------------------------------------------------------------------------------------------


def test_runs_side_by_side_follow_cores_and_free_memory():
    assert H100.jobs == 8
    assert Machine("2", "13", "A10", free_gib=22, cores=16).jobs == 2
    assert Machine("2", "13", "T4", free_gib=3, cores=16).jobs == 1
    assert NO_GPU.jobs == 1


def test_another_gpu_is_named():
    assert H100.remarks() == []
    other = Machine("2.11.0", "13.0", "Tesla T4", "7.5", 40, 15.0, 5.0, None, 4).remarks()
    assert len(other) == 4
    assert "Tesla T4" in other[0]
    assert "bfloat16" in other[1]
    assert "5 of 15 GiB are free" in other[2]
    assert "triton is not installed" in other[3]
    assert NO_GPU.remarks() == []


def test_a_missing_package_and_an_old_one_are_named(tmp_path):
    assert machine.missing(machine.needed()) == []
    assert machine.missing(["numba>=99.1", "numba>=0.50", "no-such-package"]) == ["numba>=99.1", "no-such-package"]
    # a package whose own requirement is missing
    info = tmp_path / "outer-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: outer\nVersion: 1.2\nRequires-Dist: inner-core (>=2)\n"
    )
    assert machine.missing(["outer>=1.1"], [tmp_path]) == ["inner-core (>=2)"]
    assert machine.missing(["outer>=1.10"], [tmp_path]) == ["outer>=1.10"]


def test_the_machine_starts_with_the_standard_library_alone():
    """Wheels are installed before anything else can be imported."""
    program = "import sys; before = set(sys.modules); import tools.gpu.__main__; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "pydantic", "gt_bench"} & set(json.loads(done.stdout.replace("'", '"')))


@pytest.mark.slow
def test_a_wheel_that_pip_refuses(tmp_path, workplace, monkeypatch):
    monkeypatch.setattr(machine, "needed", lambda: ["no-such-package"])
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with pytest.raises(
        gpu.Refused, match=r"not installed, and no wheel in .*wheels/: no-such-package; .* -m pip download"
    ):
        gpu.packages(wheels, tmp_path / "site", dry=False)
    (wheels / "no_such_package-1.0-cp27-cp27m-win32.whl").write_bytes(b"")
    with pytest.raises(gpu.Refused, match="pip cannot install the wheels: .*not a supported wheel"):
        gpu.packages(wheels, tmp_path / "site", dry=False)
    assert gpu.packages(wheels, tmp_path / "site", dry=True) == []  # it would be installed


@pytest.mark.slow
def test_a_carried_wheel_is_installed_without_the_network(tmp_path, workplace, monkeypatch):
    wheels, target = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    info = "tiny_part-1.5.dist-info"
    with zipfile.ZipFile(wheels / "tiny_part-1.5-py3-none-any.whl", "w") as file:
        file.writestr("tiny_part.py", "VALUE = 5\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-part\nVersion: 1.5\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"tiny_part.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    monkeypatch.setattr(machine, "needed", lambda: ["tiny-part>=1.2"])
    assert gpu.packages(wheels, target, dry=False) == [target]
    program = "import tiny_part; print(tiny_part.VALUE)"
    variables = gpu.environment([target], "cpu")
    assert subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True).stdout == b"5\n"
    monkeypatch.setattr(machine, "needed", lambda: ["tiny-part>=1.6"])
    with pytest.raises(gpu.Refused, match="tiny-part>=1.6"):
        gpu.packages(wheels, target, dry=False)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--minutes", "0"], "--minutes 0: expected more than 0"),
        (["--minutes", "-3"], "--minutes -3: expected more than 0"),
        (["--minutes", "nan"], "--minutes nan: expected more than 0"),
        (["--minutes", "1", "--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["--minutes", "1", "--limit-mib", "0"], "--limit-mib 0: expected 1 or more"),
        (["--minutes", "1", "--authors", "nowhere"], "--authors nowhere: folder not found"),
        (["--minutes", "1", "--plan", "nowhere.yaml"], "--plan nowhere.yaml: file not found"),
        (["--minutes", "1", "--out", "full"], "--out full: the folder is not empty"),
    ],
)
def test_refused_arguments(workplace, arguments, says):
    Path("full").mkdir()
    Path("full/results").touch()
    with pytest.raises(gpu.Refused, match=says):
        gpu.session(gpu.parser().parse_args(arguments))


def test_outside_a_checkout(workplace):
    Path("params.yaml").unlink()
    with pytest.raises(gpu.Refused, match="has no params.yaml; run the command in the root of a checkout"):
        gpu.session(gpu.parser().parse_args(["--minutes", "1"]))


def test_without_a_gpu_it_says_what_would_run(workplace, monkeypatch, capsys):
    monkeypatch.setattr(machine, "probe", lambda environment: NO_GPU)
    assert start(monkeypatch, {}, "--minutes", "13") == 1
    out, err = capsys.readouterr()
    assert "torch sees no GPU: nothing was run" in err
    for section in budget.SECTIONS:
        assert f"{section.name}: {section.what}; at most" in out
    assert not list(Path("gpu-session").iterdir())


@pytest.mark.slow
def test_a_plan_with_an_unknown_cell(tmp_path, capsys):
    plan = tmp_path / "plan.yaml"
    plan.write_text("runs:\n- cells: [hot/chains/nothing]\n")
    arguments = ["--minutes", "1", "--device", "cpu", "--dry-run", "--plan", str(plan)]
    done = subprocess.run([sys.executable, "-m", "tools.gpu", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{plan}: entry 1: no cell 'hot/chains/nothing'" in done.stderr


def test_the_plans_name_cells_that_exist():
    from gt_bench.config.grid import load_grid
    from gt_bench.scheduling.plan_file import read_plan

    grid = load_grid()
    for plan in (gpu.PLAN, gpu.SMALL_PLAN):
        assert read_plan(plan, grid)
    for cell in (*steps.CELLS, *steps.SMALL_CELLS):
        grid.find(cell)


# -- sections ----------------------------------------------------------------------------------------------------------

CRASH = "import os; print('before', flush=True); os.abort()"
HANG = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begun', flush=True); time.sleep(60)"
RECORD = """
from pathlib import Path
path = Path(out, "records/s/records/d/m.json.gz")
path.parent.mkdir(parents=True)
path.write_bytes(b"record")
"""


def test_a_crash_and_a_hang_lose_no_other_section(workplace, monkeypatch, capsys):
    began = time.monotonic()
    assert start(monkeypatch, {"checks": CRASH, "steps": HANG, "queue": RECORD}, "--minutes", "0.2") == 1
    assert time.monotonic() - began < 12
    out = capsys.readouterr().out
    assert "checks: killed by signal 6, " in out
    assert "steps: cut at its limit, " in out
    assert "queue: ok, " in out
    with tarfile.open("gpu-session/gpu-session.tar.gz") as file:
        names = file.getnames()
        assert file.extractfile("checks.log").read().startswith(b"before\n")
        assert file.extractfile("steps.log").read() == b"begun\n"
    assert "records/s/records/d/m.json.gz" in names
    assert not Path("gpu-session/collected").exists()  # the queue did it itself


def test_records_of_a_queue_that_crashed_are_collected(workplace, monkeypatch):
    assert start(monkeypatch, {"queue": CRASH}, "--minutes", "0.2", "--only", "queue") == 1
    assert Path("gpu-session/collected").exists()


def test_a_stop_writes_the_archive(workplace, monkeypatch):
    def stopped(*_):
        raise gpu.Stopped

    monkeypatch.setattr(gpu, "run", stopped)
    assert start(monkeypatch, {"queue": ""}, "--minutes", "1", "--only", "queue") == 143
    assert Path("gpu-session/gpu-session.tar.gz").exists()
    assert Path("gpu-session/collected").exists()


def test_processes_of_a_section_end_with_it(workplace):
    """A crashed section leaves nothing that holds the GPU."""
    program = "import os, subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); os._exit(3)"
    assert gpu.run([sys.executable, "-c", program], Path("log"), 20, gpu.environment([], "cpu")) == "status 3"
    child = Path("/proc", Path("log").read_text().strip(), "stat")
    for _ in range(100):
        if not child.exists() or child.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the child still runs")


def test_the_queue_stops_before_its_limit():
    given = argparse.Namespace(out=Path("out"), plan=None, small=False, jobs=None)
    for seconds in (8.0, 60.0, 400.0):
        found = gpu.command(budget.SECTIONS[-1], given, H100, seconds)
        until = float(found[found.index("--until") + 1]) - time.time()
        assert 0 < until < seconds
    assert until > 360
    assert found[found.index("--jobs") + 1] == "8"


@pytest.mark.slow
def test_the_queue_needs_neither_mlflow_nor_dvc_nor_optuna(tmp_path, monkeypatch):
    """One run from generated data to the archive, in a process that cannot import them."""
    from gt_bench.pipeline.grid import main as write_grid

    monkeypatch.chdir(tmp_path)
    recipe = Path("suites/embedded/recipes/chains/mlp.yaml")
    recipe.parent.mkdir(parents=True)
    recipe.write_text((ROOT / recipe).read_text())
    Path("params.yaml").write_text("limits: {}\n")
    assert write_grid([]) == 0
    Path("plan.yaml").write_text("runs:\n- {cells: [embedded/chains/mlp], seeds: 1, epochs: 2}\n")
    Path("blocked").mkdir()
    Path("blocked/sitecustomize.py").write_text(BLOCKED)
    arguments = ["--minutes", "4", "--device", "cpu", "--only", "queue", "--plan", "plan.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.gpu", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "blocked"), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    log = Path("gpu-session/queue.log")
    assert done.returncode == 0, (done.stdout, done.stderr, log.exists() and log.read_text())
    assert "embedded/chains/mlp seed 0: ok" in log.read_text()
    with tarfile.open("gpu-session/gpu-session.tar.gz") as file:
        assert "records/embedded/records/chains/mlp.json.gz" in file.getnames()


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"mlflow", "dvc", "optuna", "ruamel", "plotly", "ogb", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


# -- measurements ------------------------------------------------------------------------------------------------------


def test_the_use_of_a_device_from_a_trace():
    def event(category, name, start, length):
        return {"cat": category, "name": name, "ts": start, "dur": length}

    events = [
        event("kernel", "a", 1000, 400),
        event("kernel", "b", 1200, 100),  # inside a, in another stream
        event("kernel", "a", 1300, 200),  # 100 beyond it
        event("gpu_memcpy", "copy", 3000, 500),
        event("cpu_op", "aten::mm", 0, 9000),
        event("cuda_runtime", "cudaLaunchKernel", 10, 5),
        event("cuda_driver", "cuLaunchKernelEx", 20, 5),
        event("cuda_runtime", "cudaGraphLaunch", 30, 5),
        event("cuda_runtime", "cudaDeviceSynchronize", 40, 5),
        {"ph": "M", "name": "process_name"},
    ]
    found = steps.device_use(events)
    assert (found["launches"], found["kernels"]) == (3, 3)
    assert found["busy_ms"] == pytest.approx(1.0)
    assert found["span_ms"] == pytest.approx(2.5)
    assert found["top"] == [("a", pytest.approx(0.6), 2), ("b", pytest.approx(0.1), 1)]
    assert steps.device_use([])["busy_ms"] == 0


def test_the_order_of_measurements(tmp_path):
    (tmp_path / "s.d.m.py").touch()
    cells = ("s/d/m", "s/d/n")
    assert steps.pairs(cells, None)[:4] == [(c, f) for f in ("ours", "definitions") for c in cells]
    assert ("s/d/m", "authors") in steps.pairs(cells, tmp_path)
    assert not [form for _, form in steps.pairs(cells, None) if form == "authors"]
    assert ("s/d/n", "authors") not in steps.pairs(cells, tmp_path)


def test_the_authors_module_of_a_cell(tmp_path, monkeypatch):
    bench = SimpleNamespace(seed=7)
    monkeypatch.setattr("benchmarks.cells.Bench", lambda cell, data, store, compile: bench)
    (tmp_path / "s.d.m.py").write_text("def stepper(bench):\n    return lambda: bench.seed\n")
    _, step = steps.stepper("s/d/m", "authors", tmp_path, tmp_path, tmp_path, "inductor")
    assert step() == 7


@pytest.mark.slow
def test_a_cell_that_fails_is_a_row(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    row = steps.ask("no/such/cell", "ours", ["--out", str(tmp_path)])
    assert "no cell 'no/such/cell'" in row["error"]
    monkeypatch.setattr(steps, "LONGEST_EAGER", 0.01)
    assert steps.ask("no/such/cell", "ours", ["--out", str(tmp_path)])["error"] == "no result within 0 s"


# -- the archive -------------------------------------------------------------------------------------------------------


def write(out: Path, name: str, content: bytes) -> None:
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_the_archive_keeps_the_most_valuable_within_its_limit(tmp_path):
    import random

    noise = random.Random(0).randbytes
    write(tmp_path, "machine.json", b'{"gpu": "a GPU"}')
    write(tmp_path, "queue.log", b"x" * (3 << 20) + b"the end")
    write(tmp_path, "records/s/records/d/m.json.gz", noise(100_000))
    write(tmp_path, "checkpoints/aa/small/checkpoint.safetensors", noise(400_000))
    write(tmp_path, "checkpoints/aa/large/checkpoint.safetensors", noise(3_000_000))
    write(tmp_path, "traces/s.d.m.ours.json.gz", noise(50_000))
    path, dropped = archive.pack(tmp_path, 3)
    assert path.stat().st_size < 3 * 2**20
    assert dropped == ["checkpoints/aa/large/checkpoint.safetensors: 2.9 MiB do not fit"]
    with tarfile.open(path) as file:
        assert file.getnames() == [
            "summary.md", "machine.json", "queue.log", "records/s/records/d/m.json.gz",
            "checkpoints/aa/small/checkpoint.safetensors", "traces/s.d.m.ours.json.gz",
        ]  # fmt: skip
        log = file.extractfile("queue.log").read()
        assert len(log) == archive.LONGEST_LOG
        assert log.endswith(b"the end")
        assert "large/checkpoint.safetensors" in file.extractfile("summary.md").read().decode()
    archive.pack(tmp_path, 60)
    with tarfile.open(path) as file:
        assert "checkpoints/aa/large/checkpoint.safetensors" in file.getnames()


def test_the_summary_reads_files_that_were_cut(tmp_path):
    passed = {"test": "t::a", "outcome": "passed", "seconds": 1, "why": None}
    failed = {"test": "t::b", "outcome": "failed", "seconds": 1, "why": "E\nit differs by 1e-3"}
    lines = [json.dumps(passed), json.dumps(failed), '{"test": "t::c", "outc']
    (tmp_path / "checks.jsonl").write_text("\n".join(lines))
    ours = {"cell": "s/d/m", "form": "ours", "ms": 2.0, "ms_10": 1.9, "ms_90": 2.2, "launches": 70, "kernels": 80,
            "busy_ms": 1.5, "busy_share": 0.75, "peak_mib": 1234.5}  # fmt: skip
    steps_found = [
        ours,
        ours | {"form": "definitions", "ms": 5.0},
        {"cell": "s/d/m", "form": "compiled", "error": "a|b"},
    ]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps_found))
    text = archive.summary(tmp_path)
    assert "1 passed, 1 failed, 0 skipped" in text
    assert "t::b: it differs by 1e-3" in text
    assert "| s/d/m | ours | 2.00 | 1.90 to 2.20 | 2.50 | 70 | 80 | 1.50 | 75 | 1,234 |" in text
    assert "| s/d/m | compiled | a/b |" in text
    assert "median 2.50 times as fast" in text
