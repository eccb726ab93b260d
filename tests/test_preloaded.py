"""A fork of `tests/preloaded.py` begins and ends as a Python process does."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow

# one long sleep would miss a signal that comes just before it
SLEEPS = """import os, time
print(os.getpid(), flush=True)
for _ in range(6000):
    time.sleep(0.1)
"""


def run(*words: str, **named) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **named)
    return done.returncode, done.stdout, done.stderr


def test_arguments_streams_and_exit_status(forks, tmp_path):
    (tmp_path / "script.py").write_text("import sys; print(sys.argv, __name__); sys.exit(int(input()))")
    assert run("script.py", "a b", input="3", cwd=tmp_path) == (3, "['script.py', 'a b'] __main__\n", "")
    code = "import os; print({**os.environ, 'LC_CTYPE': ''}, os.getcwd())"  # Python sets LC_CTYPE itself
    assert run("-c", code, env={"A": "1"}, cwd=tmp_path) == (0, f"{{'A': '1', 'LC_CTYPE': ''}} {tmp_path}\n", "")
    status, out, error = run("-c", "print('first'); raise ValueError('second')")
    assert (status, out, error.splitlines()[-1]) == (1, "first\n", "ValueError: second")
    assert run("-c", "import sys; sys.exit('a message')") == (1, "", "a message\n")
    assert run("-c", "import atexit; atexit.register(print, 'at the end')") == (0, "at the end\n", "")


def test_code_is_imported_before(forks):
    assert run("-c", "import sys; print('gt_bench.experiment.run' in sys.modules)") == (0, "True\n", "")
    assert run("-m", "gt_bench.cli", "--version", env={"PYTHONPATH": str(ROOT)})[1].startswith("gt-bench ")


def test_files_and_processes_that_it_starts(forks, tmp_path):
    near, far = os.pipe()
    assert run("-c", f"import os; os.write({far}, b'written')", pass_fds=[far])[0] == 0
    assert os.read(near, 100) == b"written"
    os.close(far)
    assert os.read(near, 100) == b""  # nobody else has the other end
    os.close(near)
    (tmp_path / "pool.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\nfrom multiprocessing import get_context\n\n\n"
        "class Result(int):\n    pass\n\n\n"
        "if __name__ == '__main__':\n    with ProcessPoolExecutor(1, mp_context=get_context('spawn')) as pool:\n"
        "        print(pool.submit(Result, 7).result())\n"
    )
    assert run("-m", "pool", cwd=tmp_path) == (0, "7\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_reaches_it(forks, number):
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert int(process.stdout.readline()) != process.pid
        process.send_signal(number)
        assert process.wait(60) == -number
        assert not process.stdout.read()  # it ends when nobody has the other end: the fork is gone


def test_killed_it_ends_its_python_in_the_same_way(forks):
    assert run("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")[0] == -signal.SIGKILL
