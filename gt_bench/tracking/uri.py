"""Which tracking store is in use, and the one line that says that it cannot be."""

import contextlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from gt_bench.tracking.sqlite import OWN
from gt_bench.utils.io import WriteError, write_bytes
from gt_bench.utils.redact import without_credentials


def tracking_uri() -> str:
    """MLFLOW_TRACKING_URI, or the SQLite file of this folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or OWN


def is_installed(folder: Path = Path("mlruns")) -> bool:
    """Whether MLflow is; where it is not, one line says so, once in a folder."""
    try:
        if find_spec("mlflow"):
            return True
    except ModuleNotFoundError:
        pass
    note = folder / "not-installed"
    with contextlib.suppress(OSError, WriteError):
        if not note.exists():
            print(
                "MLflow shows no runs, since it is not installed (this line appears once in a folder); run: python -m pip install mlflow",
                file=sys.stderr,
                flush=True,
            )
            write_bytes(note, b"")
    return False


def warn(uri: str, suite: str, reason: str, meanwhile: str = "Training goes on") -> None:
    """A line on stderr without credentials: why MLflow cannot be used, what goes on `meanwhile`, and the command that completes the experiment later."""
    # what was tried has no leaderboard
    remedy = "the same command" if suite == "tried" else f"`python -m stages.leaderboard {suite}`"
    uri, reason = without_credentials(uri), without_credentials(reason)
    print(
        f"warning: MLflow at {uri} cannot be used: {reason}. {meanwhile}; {remedy} completes it later.",
        file=sys.stderr,
        flush=True,
    )
