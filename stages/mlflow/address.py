"""Which tracking store is in use, and the one line that says that it cannot be."""

import os
import sys

from stages.addresses import without_credentials
from stages.mlflow.database import OWN


def tracking_uri() -> str:
    """MLFLOW_TRACKING_URI, or the SQLite file of this folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or OWN


def warn(uri: str, suite: str, reason: str, meanwhile: str = "Training goes on") -> None:
    """A line on stderr without credentials: why MLflow cannot be used, what goes on `meanwhile`, and the command that completes the experiment later."""
    remedy = f"python -m stages.leaderboard {suite}"
    uri, reason = without_credentials(uri), without_credentials(reason)
    print(f"warning: MLflow at {uri} cannot be used: {reason}. {meanwhile}; `{remedy}` completes it later.", file=sys.stderr, flush=True)
