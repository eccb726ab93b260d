"""Weights of a cell's best seed: saved in the store next to its record, and loaded as a model.

store/<first two digits>/<digest>/weights.safetensors    weights of the tested epoch; model and arguments in the header
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from gt_bench.records.run import WEIGHTS, RunRecord
from gt_bench.store.run_store import Store, best_run
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_bytes
from gt_bench.utils.json_types import Settings
from gt_models.layers.edge_head import EdgeHead, EdgeModel
from gt_models.registry import create_model, model_info

OF_EVERY_SEED = "of every seed"  # marks weights that another cell starts from


class WeightsError(UserError, ValueError):
    """Saved weights are missing or damaged. The message names the file or the cell, and the remedy."""


def all_arguments(model: str, given: Settings) -> Settings:
    """Returns the arguments of a model's constructor, defaults included, as JSON values.

    Args:
        model: name of the model.
        given: the arguments that were passed.
    """
    parameters = inspect.signature(model_info(model).cls).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty}
    return json.loads(json.dumps(defaults | dict(given), default=str))


def save_trained(
    folder: Path,
    state: Mapping[str, Tensor],
    model: str,
    arguments: Settings,
    of_every_seed: bool = False,
    head: Settings | None = None,
) -> Path:
    """Writes weights atomically, with the name and the arguments of their model.

    Args:
        folder: folder of the run.
        state: state dict of the model.
        model: name of the model.
        arguments: arguments of its constructor.
        of_every_seed: whether `keep_best` must not delete them.
        head: arguments of the head of a task of edges. None without head.

    Returns:
        The file.

    Raises:
        WriteError: the file cannot be written, for example because the disk is full.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    about = {"model": model, "arguments": json.dumps(arguments)} | ({"kept": OF_EVERY_SEED} if of_every_seed else {})
    about |= {"head": json.dumps(head)} if head else {}
    return write_bytes(folder / WEIGHTS, _with_sorted_metadata(save(tensors, about)))


def _with_sorted_metadata(content: bytes) -> bytes:
    """Returns a safetensors file with its metadata in order; the library writes them in a random one."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def with_head(model: nn.Module, head: Settings | None) -> nn.Module:
    """Returns a node model with the head of a task of edges.

    Args:
        model: the model.
        head: arguments of `gt_models.layers.edge_head.EdgeHead`. None to return the model itself.

    Raises:
        ValueError: the arguments do not fit the head.
    """
    return model if head is None else EdgeModel(model, EdgeHead(**head))


def load_trained(path: str | Path) -> nn.Module:
    """Loads a model from saved weights, in evaluation mode. Nothing is unpickled.

    Args:
        path: the file of the weights, or its folder.

    Returns:
        The model. Its input is a GraphBatch with the encodings of its recipe.

    Raises:
        WeightsError: the file is missing, damaged, or does not fit the model.
    """
    path = Path(path)
    path = path / WEIGHTS if path.is_dir() else path
    try:
        about = _about(path)
        head = json.loads(about["head"]) if "head" in about else None
        model = with_head(create_model(about["model"], **json.loads(about["arguments"])), head)
        tensors = load_file(path)
        model.to(next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.float32))
        model.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise damaged(path, error) from None
    return model.eval()


def keep_best(records: Sequence[RunRecord], store: Store) -> None:
    """Deletes the weights of all runs of a cell except the best one and those that another cell starts from."""
    best = best_run(records)
    for record in records:
        path = store.folder(record.digest) / WEIGHTS
        if best is not None and record.digest != best.digest and path.exists() and not _is_of_every_seed(path):
            path.unlink(missing_ok=True)


def damaged(path: Path, error: Exception) -> WeightsError:
    """Returns the error of a file that is missing or does not contain weights."""
    remedy = "delete the run's folder in store/ and train its cell again"
    return WeightsError(f"no weights of a model ({error})", file=path, remedy=remedy)


def _is_of_every_seed(path: Path) -> bool:
    try:
        return _about(path).get("kept") == OF_EVERY_SEED
    except SafetensorError:  # damaged: no cell can start from it
        return False
    except (OSError, RuntimeError):  # not readable: it remains, unless another process has just removed it
        return path.exists()


def _about(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata() or {}
