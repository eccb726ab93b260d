"""The environment in a record: everything that affects the computation, but no person or place."""

import getpass
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.checkout import commit
from gt_bench.runtime.environment import blas, choose_device, cpu_name, environment, packages, share_gpu
from tests.conftest import ROOT


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path) -> Path:
    for name in (
        "gt_models/mlp.py",
        "suites/a/recipes/b/c.yaml",
        "suites/a/page.md",
        "docs/page.md",
        "params.yaml",
        "dvc.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "gt_models/mlp.py",
        "gt_models/mine.py",
        "suites/a/recipes/b/mine.yaml",
        "params.yaml",
        "suites/a/experiments/mine.py",
    ],
)
def test_a_commit_is_dirty_where_a_file_that_decides_a_number_differs(tree, name):
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("two\n")
    assert re.fullmatch(r"[0-9a-f]{40}-dirty", commit(tree))


@pytest.mark.parametrize(
    "name",
    [
        "suites/a/page.md",
        "suites/a/records/b/c.json.gz",
        "docs/page.md",
        "tests/test_mine.py",
        "reports/a.md",
        "dvc.yaml",
    ],
)
def test_a_commit_is_clean_whatever_records_and_docs_hold(tree, name):
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("two\n")
    assert re.fullmatch(r"[0-9a-f]{40}", commit(tree))


def test_outside_a_repository_there_is_no_commit(tmp_path):
    assert commit(tmp_path) is None


def test_unpacked_within_another_repository_there_is_no_commit(tree):
    (tree / ".gitignore").write_text("unpacked/\n")
    (tree / "unpacked/gt_models").mkdir(parents=True)
    (tree / "unpacked/gt_models/mlp.py").write_text("one\n")
    assert commit(tree / "unpacked") is None


def test_the_versions_do_not_depend_on_what_the_process_has_loaded():
    script = "from gt_bench.runtime.environment import packages; import json; print(json.dumps(packages()))"
    child = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(child.stdout) == packages()
    assert {"torch", "torch-geometric", "numba"} <= packages().keys()


def test_the_matrix_libraries_are_named_with_their_threads():
    threads = torch.get_num_threads()
    found = blas()
    assert found["torch"].endswith(f"{threads} thread{'s' if threads > 1 else ''}")
    assert re.match(r"\w+ [\d.]+ .*\d threads?$", found["numpy"])
    assert environment(torch.device("cpu"), "none").cpu_capability == torch.backends.cpu.get_cpu_capability()


def texts(content) -> list[str]:
    if isinstance(content, dict):
        return [*content, *(text for value in content.values() for text in texts(value))]
    if isinstance(content, list):
        return [text for value in content for text in texts(value)]
    return [content] if isinstance(content, str) else []


def test_a_record_names_no_path_no_user_and_no_host(project):
    project.recipe()
    grid = load_grid()
    train_cell(grid.find("small/web/mlp"), grid)
    record = project.records()[0].to_disk()
    assert not [text for text in texts(record) if re.search(r"""(^|[\s"'(=:,])(/|[A-Za-z]:\\)\w""", text)]
    names = {getpass.getuser(), socket.gethostname(), Path.home().name, project.root.name}
    assert not [text for text in texts(record) if names & set(re.split(r"[\s@/,]+", text))]
    assert str(project.root) not in json.dumps(record)


def test_two_generations_of_one_name_are_two_processors(tmp_path):
    def of(text: str) -> str:
        (tmp_path / "cpuinfo").write_text(text)
        return cpu_name(tmp_path / "cpuinfo")

    core = "processor\t: {}\ncpu family\t: {}\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n"
    assert of(core.format(0, 25) + core.format(1, 25)) == "AMD EPYC (family 25, model 17)"
    assert of(core.format(0, 26)) == "AMD EPYC (family 26, model 17)"
    assert of("processor : 0\nmodel name : one without a vendor\n") == "one without a vendor"
    assert of("processor : 0\nBogoMIPS : 50.00\n") == cpu_name(tmp_path / "missing") != ""


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_gpu_has_an_index(name, monkeypatch):
    """torch requires it of the device whose memory processes share."""
    shares = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.memory._lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 * 2**30))
    monkeypatch.setattr(torch._C, "_cuda_setMemoryFraction", lambda *call: shares.append(call), raising=False)
    assert choose_device(name) == torch.device("cuda", 0)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    share_gpu(choose_device(name), 4)
    assert shares == [(pytest.approx(0.25 - 0.75 / 80), 0)]
