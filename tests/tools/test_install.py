"""tools/install.sh: uv where it is on PATH, with the settings of pip; else pip."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SETTINGS = "UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS SSL_CERT_FILE"


@pytest.fixture
def place(tmp_path):
    """A virtual environment whose python notes how pip is called, and a folder for uv."""
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/sh\n[ "$3" = config ] && { [ "$5" = global.cert ] && echo /a/cert.pem; exit; }\n'
        f'echo "pip $*" >>{tmp_path}/log\n'
    )
    python.chmod(0o755)
    (tmp_path / "path").mkdir()
    return tmp_path


def uv(place: Path, status: int = 0) -> None:
    file = place / "path/uv"
    shown = " ".join(f"{name}=${name}" for name in SETTINGS.split())
    file.write_text(f'#!/bin/sh\necho "uv $* {shown}" >>{place}/log\nexit {status}\n')
    file.chmod(0o755)


def install(place: Path, **variables: str) -> tuple[list[str], str]:
    hidden = {*SETTINGS.split(), "UV", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        ["/bin/sh", ROOT / "tools/install.sh", "venv"],
        cwd=place,
        env=kept | {"PATH": f"{place}/path:/usr/bin:/bin"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return (place / "log").read_text().splitlines(), done.stdout


PIP = "pip -m pip install --disable-pip-version-check -c constraints.txt -e .[pipeline,dev]"


def test_without_uv_pip_installs(place):
    assert install(place)[0] == [PIP]


def test_uv_gets_the_settings_of_pip(place):
    uv(place)
    lines, _ = install(place, PIP_EXTRA_INDEX_URL="https://a https://b", PIP_FIND_LINKS="/x /y")
    assert lines == [
        "uv pip install --python venv/bin/python --index-strategy unsafe-best-match -c constraints.txt "
        "-e .[pipeline,dev] UV_DEFAULT_INDEX= UV_EXTRA_INDEX_URL=https://a https://b UV_FIND_LINKS=/x,/y "
        "SSL_CERT_FILE=/a/cert.pem"
    ]


def test_a_uv_that_fails_is_reported_and_pip_installs(place):
    uv(place, status=2)
    lines, shown = install(place)
    assert lines[1:] == [PIP]
    assert "uv failed, see above; installing with pip" in shown


def test_pip_can_be_requested(place):
    uv(place)
    assert install(place, UV="")[0] == [PIP]
