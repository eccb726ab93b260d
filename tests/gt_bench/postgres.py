"""A temporary PostgreSQL on loopback, for tests that need a real one: make test-cluster."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

BIN = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


FOLDER = Path("/tmp") / f"gt-bench-postgres-{os.getpid()}"


def _run(program: str, *arguments: str, check: bool = True) -> None:
    command = ["runuser", "-u", "postgres", "--", str(BIN / program), "-D", f"{FOLDER}/db", *arguments]
    subprocess.run(command, check=check, capture_output=True, cwd="/")


def stop() -> None:
    """Stops the server at once, if it runs."""
    _run("pg_ctl", "-m", "immediate", "stop", check=False)


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """URL of the server, which runs as the user postgres, because PostgreSQL refuses to run as root."""
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: pip install 'psycopg[binary]'")
    if BIN is None or os.geteuid() != 0 or shutil.which("runuser") is None:
        pytest.skip("no PostgreSQL that could be started here: apt-get install postgresql, and run as root")
    port = free_port()
    FOLDER.mkdir()
    shutil.chown(FOLDER, "postgres")
    _run("initdb", "-A", "trust", "-U", "bench")
    options = f"-p {port} -k {FOLDER} -c listen_addresses=127.0.0.1 -c fsync=off"
    _run("pg_ctl", "-l", f"{FOLDER}/log", "-w", "-o", options, "start")
    try:
        yield f"postgresql+psycopg://bench@127.0.0.1:{port}/postgres"
    finally:
        stop()
        shutil.rmtree(FOLDER)


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a new PostgreSQL database."""
    with postgres() as url:
        yield url
