"""wikics (Mernyei and Cangea 2020): twenty training masks, one test mask; validation as in Polynormer's code."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import pack_graph
from gt_bench.data.readers import both_directions, dataset_errors, masks_to_split
from gt_bench.data.spec import DatasetSpec, files, node_classification


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the JSON file as one undirected graph with twenty splits.

    Raises:
        DatasetError: the file is damaged or has another form.
    """
    path = paths[spec.files[0].path]
    with dataset_errors(path, "not WikiCS' JSON"):
        data = json.loads(path.read_bytes())
        x, labels = np.array(data["features"], np.float32), np.array(data["labels"], np.int64)
        links = [(i, j) for i, targets in enumerate(data["links"]) for j in targets]
        masks = (np.array(data[f"{name}_masks"], bool) for name in ("train", "val", "stopping"))
        train, val, stopping = masks  # [20, N]
        test = np.broadcast_to(np.array(data["test_mask"], bool), train.shape)
    # unstated: the validation part. As in Polynormer's code, it includes the stopping nodes
    split = masks_to_split(train, val | stopping, test)
    edges = both_directions(np.array(links, np.int64).reshape(-1, 2).T, len(labels))
    header = spec.header(in_dim=x.shape[1], out_dim=10, num_splits=len(split))
    pack_graph(folder, header, x=x, edge_index=edges, y=labels, split=split)


DATASETS = [node_classification("wikics", prepare, files=files("wikics/data.json"))]
