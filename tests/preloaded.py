"""A `python` for tests that start many: each process is a fork of one that has imported torch, MLflow and DVC.

    python -m tests.preloaded SOCKET [code]    the server, which forks; with `code` it imports this repository too
    python -m MODULE | -c TEXT | FILE          by the `python` that `preloaded` writes: a process of the server runs it

It saves seconds of imports for each process. Without `code`, modules of the repository are imported by the fork, from
the folder in which it runs: for tests that edit a copy of the repository. A fork inherits the open files, environment,
folder and signals of its `python`, and is killed with it. It is not told when the parent of its `python` ends.
Python processes that a fork starts are forks too.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import itertools
import json
import multiprocessing.spawn
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

IMPORTED = (
    "torch._dynamo", "torch.autograd.profiler", "torch.profiler", "torch_geometric.nn", "scipy.stats", "scipy.optimize",
    "scipy.ndimage", "scipy.sparse.linalg", "sklearn.metrics", "sklearn.preprocessing", "networkx", "numba", "pandas",
    "optuna", "optuna.storages.journal", "pydantic", "rich.progress", "typer", "jinja2", "mlflow",
    "mlflow.store.tracking.sqlalchemy_store", "alembic.command", "sqlalchemy.dialects.sqlite",
    "matplotlib.backends.backend_agg", "matplotlib.pyplot", "dvc.cli", "dvc.commands.repro", "dvc.repo.reproduce",
)  # fmt: skip
CODE = (
    "gt_bench.cli.app", "gt_bench.scheduling.job", "gt_bench.scheduling.local_queue", "gt_bench.experiment.cell",
    "gt_bench.experiment.run", "gt_bench.forecasting.estimate", "gt_bench.forecasting.step_timing",
    "gt_bench.pipeline.train", "gt_bench.pipeline.tune", "gt_bench.pipeline.leaderboard", "gt_bench.api.evaluate",
    "gt_bench.reports.html.build", "gt_models.baselines.gcn", "gt_models.baselines.mlp",
)  # fmt: skip
# without site-packages it starts in milliseconds
CLIENT = """#!{python} -SE
import json, os, select, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
files = [0, 1, 2, *(n for n in map(int, os.listdir("/proc/self/fd")) if n > 2 and n != server.fileno())]
files = [n for n in files if os.path.exists(f"/proc/self/fd/{{n}}")]
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), files, os.getppid()]).encode()
socket.send_fds(server, [len(request).to_bytes(4, "big") + len(files).to_bytes(4, "big")], files)
server.sendall(request)
for number in files[3:]:
    os.close(number)
answer = server.makefile("r")
near, far = socket.socketpair()
far.setblocking(False)
signal.set_wakeup_fd(far.fileno())  # a handler alone would miss a signal that comes just before it waits
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(one) is not signal.SIG_IGN:
        signal.signal(one, lambda *_: None)
worker = int(answer.readline())
while server not in select.select([server, near], [], [])[0]:
    try:
        os.kill(worker, near.recv(1)[0])
    except ProcessLookupError:
        pass
code = int(answer.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def preloaded(folder: Path, code: bool = False) -> Iterator[Path]:
    """Context manager: starts the server, and returns a folder for PATH with `python`.

    Args:
        folder: is created.
        code: whether the server imports this repository, whose code then runs in each process.
    """
    from gt_bench.runtime.threads import DECIDING, ONE_THREAD, WAITING
    from gt_bench.tracking.mirror import QUIET
    from tests.conftest import ROOT

    (folder / "bin").mkdir(parents=True)
    address, client = folder / "socket", folder / "bin/python"
    client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    client.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(DECIDING)}
    environment = inherited | dict.fromkeys(ONE_THREAD, "1") | WAITING | QUIET | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", __name__, str(address), *(["code"] if code else [])]
    with subprocess.Popen(command, env=environment) as server:
        try:
            while not address.exists():
                assert server.poll() is None, "the server has ended"
                time.sleep(0.05)
            yield client.parent
        finally:
            server.terminate()


def serve(address: str, code: bool) -> None:
    """Forks a process for each request, which runs it. Python processes that it starts are forks too."""
    sys.executable = str(Path(address).with_name("bin") / "python")
    multiprocessing.spawn.set_executable(sys.executable)
    gc.disable()
    for name in (*IMPORTED, *(CODE if code else ())):
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
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
    sizes, files, *_ = socket.recv_fds(client, 8, 250)
    with client.makefile("rb") as stream:
        words, folder, environment, numbers, parent = json.loads(stream.read(int.from_bytes(sizes[:4], "big")))
    if worker := os.fork():
        for file in files:  # pipes end with the worker
            os.close(file)
        client.sendall(b"%d\n" % worker)
        code = outcome(worker, client)
        with contextlib.suppress(BrokenPipeError):
            client.sendall(b"%d\n" % code)
        os._exit(0)
    client.close()
    here, getppid = os.getpid(), os.getppid
    os.getppid = lambda: parent if os.getpid() == here else getppid()  # the parent of its `python`
    run(words, folder, environment, dict(zip(numbers, files)))


def outcome(worker: int, client: socket.socket) -> int:
    """Waits for a process, which is killed if its client ends before it. Returns its exit code."""
    ended = os.pidfd_open(worker)
    if client in select.select([client, ended], [], [])[0]:
        os.kill(worker, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def run(words: list[str], folder: str, environment: dict[str, str], files: dict[int, int]) -> None:
    """Runs `python WORDS` in this process and ends it.

    Args:
        words: arguments of the interpreter.
        folder: working directory.
        environment: all environment variables.
        files: {number of an open file: its number in this process}.
    """
    beyond = {target: fcntl.fcntl(file, fcntl.F_DUPFD, max(files) + 1) for target, file in files.items()}
    for target, file in beyond.items():
        os.dup2(file, target, inheritable=True)
    for before, after in itertools.pairwise([*sorted(files), 1024]):  # nothing else is open in a new process
        os.closerange(before + 1, after)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    while words[0].startswith(("-B", "-u", "-W", "-X")):
        del words[0]
    if words[0] not in ("-m", "-c"):
        words = ["file", *words]
    kind, text, *rest = words
    sys.argv = [kind, *rest] if kind == "-c" else [text, *rest]
    first = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    found = [p for p in sys.path if p and not os.path.exists(f"{p}/gt_bench")]
    sys.path[:] = [folder, *first, *(p for p in found if p not in first)]
    warnings.filterwarnings("ignore", ".*found in sys.modules after import of package", RuntimeWarning)
    # multiprocessing finds the classes of the main module by the second name
    main = sys.modules["__main__"] = sys.modules["__mp_main__"] = types.ModuleType("__main__")
    code: object = 0
    interrupted = False
    try:
        if kind == "-m":
            runpy._run_module_as_main(text)
        else:
            exec(text if kind == "-c" else compile(Path(text).read_bytes(), text, "exec"), main.__dict__)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
    if isinstance(code, str):
        print(code, file=sys.stderr)
    # as the interpreter ends, without the second in which it frees all objects
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 255 if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    serve(sys.argv[1], "code" in sys.argv[2:])
