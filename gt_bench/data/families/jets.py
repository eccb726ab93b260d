"""jets: tracks of simulated jets, grouped by the vertex they come from (Shlomi et al. 2021; HOT, Table 3).

HOT reports the flavours b, c and l. Here they are one dataset; `flavour` [B] (5, 4 or 0) separates them in results.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import PackedWriter
from gt_bench.data.readers import consecutive_split, dataset_errors
from gt_bench.data.spec import DatasetSpec, files, published
from gt_bench.utils.errors import DatasetError

TRACK = ("trk_d0", "trk_z0", "trk_phi", "trk_ctgtheta", "trk_pt", "trk_charge")
JET = ("jet_pt", "jet_eta", "jet_phi", "jet_M")
# mean and standard deviation of the training set, as in HOT's loader
SCALE = {
    "trk_d0": (0.0006078152, 14.128961),
    "trk_z0": (0.0038490593, 10.688491),
    "trk_phi": (-0.0026713554, 1.8167108),
    "trk_ctgtheta": (0.0047640945, 1.889725),
    "trk_pt": (5.237357, 7.4841413),
    "trk_charge": (-0.00015662189, 1.0),
    "jet_pt": (75.95093, 49.134453),
    "jet_eta": (0.0022607117, 1.2152709),
    "jet_phi": (-0.0023569583, 1.8164033),
    "jet_M": (9.437994, 6.765137),
}
VERTEX, FLAVOUR = "trk_vtx_index", "jet_flav"


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the three ROOT files in the order train, val, test.

    Raises:
        DatasetError: a file is damaged or has another form.
    """
    counts = []
    with PackedWriter(folder) as writer:
        for entry in spec.files:
            arrays = jets(_read(paths[entry.path]), entry.path)
            writer.graphs(**arrays)
            counts.append(len(arrays["num_nodes"]))
        writer.append("split", consecutive_split(*counts))
        writer.finish(spec.header(in_dim=len(TRACK) + len(JET), out_dim=1, extras={"flavour": "graph"}))


def jets(tree: Mapping[str, np.ndarray], file: str) -> dict[str, np.ndarray]:
    """Convert the branches of the tree. Jets of one track are omitted, as in HOT.

    Args:
        tree: branches by name; branches of tracks have one array per jet.
        file: the file, for error messages.

    Returns:
        Arguments of `PackedWriter.graphs`.

    Raises:
        DatasetError: a branch is missing, or the branches contradict each other.
    """
    with dataset_errors(file, "not the tree of jets"):
        keep = [i for i, tracks in enumerate(tree[VERTEX]) if len(tracks) > 1]
        sizes = np.array([len(tree[VERTEX][i]) for i in keep])
        vertex = np.concatenate([np.asarray(tree[VERTEX][i]) for i in keep])
        tracks = [np.concatenate([np.asarray(tree[name][i], np.float64) for i in keep]) for name in TRACK]
        of_jet = [np.repeat(np.asarray(tree[name], np.float64)[keep], sizes) for name in JET]
        flavour = np.abs(np.asarray(tree[FLAVOUR])[keep]).astype(np.uint8)
        x = np.stack([(v - SCALE[name][0]) / SCALE[name][1] for name, v in zip(TRACK + JET, tracks + of_jet)], axis=1)
    pairs = [_pairs(v) for v in np.split(vertex, sizes.cumsum()[:-1])]
    return {
        "num_nodes": sizes,
        "num_edges": np.zeros_like(sizes),
        "edge_index": np.zeros((2, 0), np.uint8),
        "x": x.astype(np.float32),
        "num_pairs": np.array([p.shape[1] for p in pairs]),
        "pair_index": np.concatenate(pairs, axis=1).astype(np.uint8),
        "flavour": flavour,
    }


def _pairs(vertex: np.ndarray) -> np.ndarray:
    """Return ordered pairs [2, P] of tracks of one vertex, including each track with itself."""
    return np.stack((vertex[:, None] == vertex[None]).nonzero())


def _read(path: Path) -> dict[str, np.ndarray]:
    """Read the used branches of the TTree `tree`. Raises DatasetError for any other file."""
    import uproot

    wanted = [*TRACK, *JET, VERTEX, FLAVOUR]
    with dataset_errors(path, "not a readable ROOT file of jets"), uproot.open(path) as root:
        branches = root["tree"].arrays(wanted, library="np")
    missing = [name for name in wanted if name not in branches]
    if missing:
        problem = f"not a readable ROOT file of jets: no branch named {', '.join(missing)}"
        raise DatasetError(problem, file=path, value=missing)
    return {name: branches[name] for name in wanted}


DATASETS = [
    published(
        "jets",
        "set-to-graph",
        "partition-f1",
        prepare,
        also=("rand-index", "adjusted-rand-index"),
        level="pair",
        files=files("jets/training_data.root", "jets/valid_data.root", "jets/test_data.root"),
        needs=("uproot",),
    )
]
