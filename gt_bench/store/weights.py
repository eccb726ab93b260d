"""The weights of a cell's best seed: kept in the store beside its record, and loaded again as a model.

store/<first two digits>/<digest>/weights.safetensors    the weights of the epoch that was tested; its header says of which model
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from gt_bench.schemas import Record, Settings
from gt_bench.store.best_run import best_run
from gt_bench.store.run_store import Store
from gt_bench.training.pretrained_init import FILE
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_bytes
from gt_models.registry import create_model, model_info

OF_EVERY_SEED = "of every seed"  # because another cell starts from them


class NotKept(UserError, ValueError):
    """There are no weights to load; the message names the file and the remedy."""


def all_arguments(model: str, given: Settings) -> Settings:
    """What the constructor of `model` was called with, its defaults included, as plain JSON."""
    parameters = inspect.signature(model_info(model).cls).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty}
    return json.loads(json.dumps(defaults | dict(given), default=str))


def save_trained(
    folder: Path, state: Mapping[str, Tensor], model: str, arguments: Settings, of_every_seed: bool = False
) -> Path:
    """Writes the weights into `folder`, atomically, with what it takes to build their model. `of_every_seed`: `keep_best` lets them be.
    Raises WriteError on a full disk."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    about = {"model": model, "arguments": json.dumps(arguments)} | ({"kept": OF_EVERY_SEED} if of_every_seed else {})
    return write_bytes(folder / FILE, save(tensors, about))


def load_trained(path: str | Path) -> nn.Module:
    """The model whose weights `path` holds (the file, or the folder that it lies in), ready to predict; its input is a GraphBatch with the
    encodings of its recipe. Nothing is unpickled. Raises NotKept."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    try:
        about = _about(path)
        model = create_model(about["model"], **json.loads(about["arguments"]))
        tensors = load_file(path)
        model.to(next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.float32))
        model.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise NotKept(damaged(path, error)) from None
    return model.eval()


def keep_best(records: Sequence[Record], store: Store) -> None:
    """Of these runs of one cell only the best one's weights stay, but for those that another cell starts from."""
    best = best_run(records)
    for record in records:
        path = store.folder(record["digest"]) / FILE
        if best is not None and record["digest"] != best["digest"] and path.exists() and not _is_of_every_seed(path):
            path.unlink(missing_ok=True)


def damaged(path: Path, error: Exception) -> str:
    """What is said of a file that holds no weights, and the remedy."""
    return f"{path}: no weights of a model ({error}); delete the run's folder in store/ and train its cell again"


def _is_of_every_seed(path: Path) -> bool:
    try:
        return _about(path).get("kept") == OF_EVERY_SEED
    except SafetensorError:  # damaged: nothing can start from it
        return False
    except (OSError, RuntimeError):  # cannot be opened: left as it is, unless another process has just removed it
        return path.exists()


def _about(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata() or {}
