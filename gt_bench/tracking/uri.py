"""The address of the tracking store, and the warning that it cannot be used."""

import contextlib
import os
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path

from gt_bench.tracking.sqlite import OWN
from gt_bench.utils.io import WriteError, held, make_folder, write_bytes
from gt_bench.utils.redact import without_credentials


def tracking_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or the URI of this project's SQLite file."""
    return os.environ.get("MLFLOW_TRACKING_URI") or OWN


def workspace_id() -> str:
    """Return the id of this workspace, mlruns/id, which is created on its first use."""
    path = Path("mlruns") / "id"
    if not path.exists():
        with held(make_folder(path.parent) / ".id.lock"):
            if not path.exists():
                write_bytes(path, f"{uuid.uuid4()}\n".encode())
    return path.read_text(encoding="utf-8").strip()


def is_installed() -> bool:
    """Return whether MLflow is installed; if not, print one line, once per folder."""
    try:
        if find_spec("mlflow"):
            return True
    except ModuleNotFoundError:
        pass
    note = Path("mlruns", "not-installed")
    with contextlib.suppress(OSError, WriteError):
        if not note.exists():
            print(
                "MLflow is not installed, runs are not tracked (this line is printed once per folder); run: python -m "
                "pip install mlflow",
                file=sys.stderr,
                flush=True,
            )
            write_bytes(note, b"")
    return False


def warn(uri: str, suite: str, reason: str, meanwhile: str = "Training continues") -> None:
    """Print a warning on stderr, without credentials, that MLflow cannot be used.

    Args:
        uri: of the tracking store.
        suite: whose experiment is incomplete.
        reason: the error.
        meanwhile: what is not affected.
    """
    # the suite "tried" has no leaderboard
    command = "the same command" if suite == "tried" else f"`python -m stages.leaderboard {suite}`"
    uri, reason = without_credentials(uri), without_credentials(reason)
    print(
        f"warning: MLflow at {uri} cannot be used: {reason}. {meanwhile}; run {command} later to update MLflow.",
        file=sys.stderr,
        flush=True,
    )
