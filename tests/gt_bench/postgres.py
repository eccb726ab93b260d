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


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """URL of the server, which runs as the user postgres, because PostgreSQL refuses to run as root."""
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: pip install 'psycopg[binary]'")
    if BIN is None or os.geteuid() != 0 or shutil.which("runuser") is None:
        pytest.skip("no PostgreSQL that could be started here: apt-get install postgresql, and run as root")
    folder, port = Path("/tmp") / f"gt-bench-postgres-{os.getpid()}", free_port()
    folder.mkdir()
    shutil.chown(folder, "postgres")

    def run(*command: str) -> None:
        subprocess.run(["runuser", "-u", "postgres", "--", *command], check=True, capture_output=True, cwd="/")

    run(str(BIN / "initdb"), "-D", f"{folder}/db", "-A", "trust", "-U", "bench")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run(str(BIN / "pg_ctl"), "-D", f"{folder}/db", "-l", f"{folder}/log", "-w", "-o", options, "start")
    try:
        yield f"postgresql+psycopg://bench@127.0.0.1:{port}/postgres"
    finally:
        run(str(BIN / "pg_ctl"), "-D", f"{folder}/db", "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a new PostgreSQL database."""
    with postgres() as url:
        yield url
