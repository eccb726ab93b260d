"""DVC entry points, one script per stage. The library is gt_bench."""

import sys
from importlib.machinery import ModuleSpec

# packages that were here until version 0.1
_MOVED = {
    "cli": "cli",
    "datasets": "data",
    "engine": "training",
    "findings": "claims.experiments",
    "mlflow": "tracking",
    "own": "plugins",
    "protocols": "config.protocols",
    "records": "store",
    "report": "reports",
    "side_by_side": "runtime",
    "sweep": "scheduling",
    "tasks": "tasks",
}
_STAGES = {"state", "download", "encode", "tune", "train", "leaderboard"}


class _Moved:
    """Names the new place in the error of an import that finds nothing."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        first = name.removeprefix("stages.").split(".")[0]
        if not name.startswith("stages.") or first in _STAGES:
            return None
        place = f"gt_bench.{_MOVED[first]}" if first in _MOVED else "a package of gt_bench"
        raise ModuleNotFoundError(
            f"no module {name}: the library is now gt_bench; look in {place} (docs/architecture.md)", name=name
        )


sys.meta_path.insert(0, _Moved)
