"""Raw files with a flaw: one clear error that names the file and the place, and nothing is written."""

import gzip
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.raw_files import RAW, Malicious, csv_gz, tpu_tar
from tests.refusals import refused

Flaw = Callable[[Path], None]


def text(edit: Callable[[str], str]) -> Flaw:
    return lambda path: path.write_text(edit(path.read_text())) and None


def npz(**arrays: object) -> Flaw:
    def change(path):
        with np.load(path) as given:
            content = {**given, **arrays}
        np.savez(path, **content)

    return change


def member(name: str, edit: Callable[[bytes], bytes]) -> Flaw:
    """Another content of the members of a zip file whose names end with `name`."""

    def change(path):
        with zipfile.ZipFile(path) as archive:
            content = {one: archive.read(one) for one in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for one, before in content.items():
                archive.writestr(one, edit(before) if one.endswith(name) else before)

    return change


def lines(name: str, edit: Callable[[str], str]) -> Flaw:
    return member(name, lambda content: edit(content.decode()).encode())


def first_line(name: str, line: str) -> Flaw:
    return lines(name, lambda content: line + content[content.index("\n") :])


def molecules(edit: Callable[[list], object]) -> Flaw:
    return member("train.pickle", lambda content: pickle.dumps(edit(pickle.loads(content))))


def hyperedge(*row: float) -> Flaw:
    return npz(train_data=np.array([[0, 0, 0], row]))


def other_runtimes(data: dict) -> dict:
    return data | {"config_runtime": np.ones(99)}


def no_molecule(content: bytes) -> bytes:
    return gzip.compress(gzip.decompress(content).replace(b",CNO,", b",?NO,"))


MUSAE, ZINC, ALCHEMY = "wikipedia/chameleon/musae_chameleon_", "molecules/train.pickle", "alchemy_full/alchemy_full_"
SHAPES = ((10, 39), (10, 40), (10, 40))
# dataset, number of the file, its flaw, fields of the error; the file of the error is that file unless it is given
FLAWS = [
    ("roman-empire", 0, npz(val_masks=np.ones((10, 40), bool)), {"file": None, "place": ""}),
    ("roman-empire", 0, npz(node_labels=np.full(40, 18)), {"file": None, "place": "array 'y'"}),
    ("roman-empire", 0, npz(edges=np.array([[0, 40]])), {"file": None, "value": 40}),
    ("roman-empire", 0, npz(edges=np.array([{}], dtype=object)), {"place": "array 'edges'"}),
    ("roman-empire", 0, npz(train_masks=np.ones((10, 39), bool)), {"file": None, "value": SHAPES}),
    ("computer-tokengt", 0, npz(adj_indices=np.full(10, 9999)), {}),
    ("computer-tokengt", 0, npz(labels=np.repeat(range(10), [50] + 8 * [60] + [100])),
     {"file": None, "place": "class 0", "value": 50}),
    ("cornell", 1, text(lambda content: content.replace("\t", " ", 2)), {"place": "line 2", "value": 1}),
    ("chameleon", 0, lines("edges.csv", lambda content: content + "5,420\n"), {"file": None, "value": 420}),
    ("chameleon", 0, lines("edges.csv", lambda content: content + "5\n"), {"place": f"{MUSAE}edges.csv"}),
    ("chameleon", 0, lines("target.csv", lambda content: content.replace(",", ",x", 3)),
     {"place": f"{MUSAE}target.csv"}),
    ("chameleon", 0, lines("features.json", lambda content: content[:-9]), {"place": f"{MUSAE}features.json"}),
    ("chameleon", 0, lines("features.json", lambda content: content.replace('"0": [', '"0": [99999, ')),
     {"place": f"{MUSAE}features.json"}),
    *(("gps", 0, hyperedge(*row), {}) for row in ((0, 0, 3), (0, -1, 0), (0, 0.5, 0))),
    ("zinc", 0, molecules(lambda found: {"molecules": found}), {"place": ZINC}),
    ("zinc", 0, molecules(lambda found: [{"atom_type": found[0]["atom_type"]}] * 7), {"place": ZINC}),
    ("zinc", 0, molecules(lambda found: [found[0] | {"bond_type": torch.zeros(1, 1)}] * 7), {"place": ZINC}),
    ("zinc", 0, molecules(lambda found: [Malicious()]), {"place": ZINC, "value": "posix.system"}),
    *(("zinc", 1, text(lambda _, ids=ids: ids), {"file": None, "place": ZINC}) for ids in ("7\n", "1,1\n")),
    ("alchemy", 0, first_line("_A.txt", "1, 27"), {"place": ""}),
    ("alchemy", 0, first_line("_node_labels.txt", "x"), {"place": f"{ALCHEMY}node_labels.txt"}),
    *(("wikics", 0, text(lambda _, flaw=flaw: flaw), {}) for flaw in ('{"features": 1}', "[1,", "[" * 200_000)),
    ("wikics", 0, text(lambda content: content.replace('"links": [[', '"links": [[99, ')), {"file": None, "value": 99}),
    ("pcqm4mv2", 0, member("data.csv.gz", no_molecule), {"file": None, "value": "?NO"}),
    ("pokec", 1, lambda path: np.save(path, np.load(path, allow_pickle=True)[:2], allow_pickle=True), {}),
    ("pokec", 0, lambda path: path.write_bytes(b"MATLAB no more"), {}),
    ("ogbn-arxiv", 0, member("raw/edge.csv.gz", lambda _: b"not gzip"), {"file": "edge.csv.gz"}),
    ("ogbn-arxiv", 0, member("node-label.csv.gz", lambda _: csv_gz(np.array([[1.5]]))), {"file": "node-label.csv.gz"}),
    ("ogbn-arxiv", 0, member("node-feat.csv.gz", lambda _: csv_gz(np.zeros((3, 6)))),
     {"file": None, "place": "array 'x'", "value": 3}),
    ("ogbn-arxiv", 0, member("test.csv.gz", lambda _: csv_gz(np.array([[50]]))), {"file": None, "value": 50}),
    ("tpugraphs-layout-tile", 0, lambda path: tpu_tar(path, "tile", [9], edit=other_runtimes), {"file": None}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "number", "flaw", "fields"), FLAWS)
def test_flaws_are_named(name, number, flaw, fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, paths = RAW[name](tmp_path)
    flaw(path := [*paths.values()][number])
    fields = {"file": str(path)} | fields
    with refused(DatasetError, **{key: value for key, value in fields.items() if value is not None}):
        spec.prepare(spec, paths, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "evil").exists()
