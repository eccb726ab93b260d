"""Serve the MLflow user interface, and print the address of each suite's leaderboard.

python -m gt_bench.tracking.ui [--host 127.0.0.1] [--port 5000] [other options of `mlflow server`]
"""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path

from gt_bench.tracking.mirror import PATIENCE, QUIET, tracking_errors
from gt_bench.tracking.saved_views import PREFIX, address_of, first_view
from gt_bench.tracking.sqlite import TrackingError, ready_database
from gt_bench.tracking.uri import tracking_uri
from gt_bench.utils.redact import without_credentials

NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # it would start eight processes that are never used


def addresses(uri: str, root: str) -> list[str]:
    """Return a line for each experiment that has a saved view.

    Raises:
        TrackingError: the tracking store cannot be read.
    """
    with tracking_errors(uri), ready_database(uri):
        from mlflow import MlflowClient

        found = MlflowClient(tracking_uri=uri, registry_uri=uri).search_experiments(order_by=["name ASC"])
    seen = [(e.name, e.experiment_id, first_view(e.name)) for e in found if PREFIX + first_view(e.name) in e.tags]
    width = max((len(name) for name, _, _ in seen), default=0)
    return [f"  {name:<{width}}  {address_of(number, view, f'{root}/')}" for name, number, view in seen]


def main() -> int:
    """Serve the user interface until it is interrupted; return 1 if there is no tracking store."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    options, others = parser.parse_known_args()
    uri, root = tracking_uri(), f"http://{options.host}:{options.port}"
    if uri.startswith("http"):
        root = without_credentials(uri)
    elif not Path(uri.removeprefix("sqlite:///")).exists():
        print(
            f"{uri.removeprefix('sqlite:///')}: no such file; run `make reproduce` or `python -m stages.leaderboard "
            "SUITE` to create it",
            file=sys.stderr,
        )
        return 1
    os.environ.update(PATIENCE | os.environ | QUIET | NO_JOBS)
    try:
        first = f"MLflow at {root} (select 'Model training' once per browser); the leaderboard of each suite:"
        print("\n".join([first, *addresses(uri, root)]), flush=True)
    except TrackingError as error:
        print(f"error: MLflow at {root}: {without_credentials(str(error))}", file=sys.stderr)
        return 1
    if uri.startswith("http"):
        return 0
    address = ["--host", options.host, "--port", str(options.port)]
    command = ["-m", "mlflow", "server", "--backend-store-uri", uri, *address, "--workers", "1", *others]
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    sys.exit(main())
