"""wikics (Mernyei and Cangea 2020): twenty training masks, one test mask; validation as Polynormer runs it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed import pack
from gt_bench.data.readers import both_directions, masks_to_split, read_json
from gt_bench.data.spec import DatasetSpec, files
from gt_bench.utils.errors import DatasetError


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Packs the JSON file as one undirected graph with twenty splits. Raises DatasetError for a file of another form."""
    path = paths[spec.files[0].path]
    data = read_json(path)
    try:
        x, labels = np.array(data["features"], np.float32), np.array(data["labels"], np.int64)
        links = [(i, j) for i, targets in enumerate(data["links"]) for j in targets]
        train, val, stopping = (
            np.array(data[key], bool) for key in ("train_masks", "val_masks", "stopping_masks")
        )  # [20, N]
        test = np.broadcast_to(np.array(data["test_mask"], bool), train.shape)
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{path}: not WikiCS' JSON ({type(error).__name__}: {error})") from error
    # unstated in the paper, done by its code: the stopping nodes validate too
    split = masks_to_split(train, val | stopping, test)
    edges = both_directions(np.array(links, np.int64).reshape(-1, 2).T, len(labels))
    pack(
        folder,
        spec.header(in_dim=x.shape[1], out_dim=10, num_splits=len(split)),
        {
            "num_nodes": [len(labels)],
            "num_edges": [edges.shape[1]],
            "x": x,
            "edge_index": edges,
            "y": labels,
            "split": split,
        },
    )


DATASETS = [
    DatasetSpec(
        name="wikics",
        family="wikics",
        task="node-classification",
        metric="accuracy",
        level="node",
        split_kind="node",
        prepare=prepare,
        files=files("wikics/data.json"),
        expected={"nodes": 11701, "classes": 10, "features": 300, "self_loops": 0, "symmetric": True, "splits": 20},
        licence="MIT",
        homepage="https://github.com/pmernyei/wiki-cs-dataset",
        citation="Mernyei and Cangea, Wiki-CS: A Wikipedia-Based Benchmark for Graph Neural Networks, 2020",
        notes=(
            "validation and stopping masks together, as Polynormer's code does; its paper names the validation mask",
            "no checksum is published",
        ),
    )
]
