"""requirements.lock has the versions of constraints.txt, each with a hash."""

import re

from tests.conftest import ROOT


def versions(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.M)
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_the_lock_is_of_the_versions_that_were_tested():
    tested, locked = versions("constraints.txt"), versions("requirements.lock")
    different = {name: version for name, version in locked.items() if tested.get(name, version) != version}
    assert not different, "run `make lock`"
    assert {"torch", "torch-geometric", "mlflow", "dvc", "optuna"} <= locked.keys()


def test_every_file_has_a_hash():
    entries = re.split(r"^(?=[\w.-]+==)", (ROOT / "requirements.lock").read_text(), flags=re.M)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
