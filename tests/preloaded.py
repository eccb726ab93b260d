"""A `python` for tests that start many: each process is a fork of one that has imported torch, MLflow and DVC.

    python -m tests.preloaded SOCKET      the server, which forks; no module of this repository is imported in it
    python -m MODULE ...                  by the `python` that `preloaded` writes: a process of the server runs it

It saves seconds of imports for each process. Modules of this repository are imported by the fork, from its own folder.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

IMPORTED = (
    "torch._dynamo", "torch.autograd.profiler", "torch.profiler", "torch_geometric.nn", "scipy.stats", "scipy.optimize",
    "scipy.ndimage", "scipy.sparse.linalg", "numba", "pandas", "optuna", "optuna.storages.journal", "pydantic", "typer",
    "jinja2", "mlflow", "mlflow.store.tracking.sqlalchemy_store", "alembic.command", "sqlalchemy.dialects.sqlite",
    "matplotlib.backends.backend_agg", "matplotlib.pyplot", "dvc.cli", "dvc.commands.repro", "dvc.repo.reproduce",
)  # fmt: skip
# without site-packages it starts in milliseconds
CLIENT = """#!{python} -SE
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
server.sendall(request)
sys.exit(server.recv(1)[0])
"""


@contextlib.contextmanager
def preloaded(folder: Path) -> Iterator[Path]:
    """Context manager: starts the server, and returns a folder for PATH with `python`."""
    from gt_bench.runtime.threads import DECIDING, ONE_THREAD, WAITING
    from gt_bench.tracking.mirror import QUIET
    from tests.conftest import ROOT

    (folder / "bin").mkdir(parents=True)
    address, client = folder / "socket", folder / "bin/python"
    client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    client.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(DECIDING)}
    environment = inherited | dict.fromkeys(ONE_THREAD, "1") | WAITING | QUIET | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-m", __name__, str(address)], env=environment) as server:
        try:
            while not address.exists():
                assert server.poll() is None, "the server has ended"
                time.sleep(0.05)
            yield client.parent
        finally:
            server.terminate()


def serve(address: str) -> None:
    """Forks a process for each request; a process returns from here, and ends as any other program does."""
    for name in IMPORTED:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{address}.new")
        listening.listen()
        os.rename(f"{address}.new", address)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        while True:
            client, _ = listening.accept()
            if os.fork() == 0:
                break
            client.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    size, files, *_ = socket.recv_fds(client, 4, 3)
    with client, client.makefile("rb") as stream:
        words, folder, environment = json.loads(stream.read(int.from_bytes(size, "big")))
        if worker := os.fork():
            code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            client.sendall(bytes([code if code >= 0 else 128 - code]))
            os._exit(0)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    assert words[0] == "-m", words
    sys.argv, sys.path[:] = words[1:], [folder, *(p for p in sys.path if p and not os.path.exists(f"{p}/gt_bench"))]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(sys.argv[1])
