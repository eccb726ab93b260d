"""How far a run that has not ended had come: the curves in the header of its checkpoint, read without its weights."""

import json
from pathlib import Path

from gt_bench.schemas import Curves


def curves_reached(folder: Path) -> Curves:
    """Quantity -> its value at each epoch until the checkpoint in a run's folder; empty where there is none that can be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
            return {name: list(curve) for name, curve in json.loads(file.metadata()["header"])["curves"].items()}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        return {}
