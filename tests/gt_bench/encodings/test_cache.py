"""Cached encodings: rows by graph ids, digests, stale and damaged files."""

import hashlib
import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gt_bench.encodings import cache
from gt_bench.encodings import compute as encoding
from gt_bench.encodings.cache import EncodedDataset, encodings_digest
from gt_bench.encodings.compute import encode
from gt_bench.utils.errors import DatasetError
from gt_models.encodings import ENCODINGS, EncodingError, compute
from tests.gt_bench.encodings.cases import default_arguments, folder_of, make_packed
from tests.gt_models.checks import collate
from tests.refusals import refused


@pytest.mark.slow
@pytest.mark.parametrize("limit", [cache.STORE_LIMIT, 1])
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_attach_gives_what_computing_the_graphs_gives(packed, name, limit, monkeypatch):
    monkeypatch.setattr(cache, "_PAIRS_PER_BATCH", 60)
    arguments = default_arguments(name)
    encode(packed, folder_of(packed), name, arguments, limit=limit)
    dataset = EncodedDataset(packed, folder_of(packed), {name: arguments})
    for order in ([0, 1, 2, 3, 4, 5], [4, 0, 2], [2, 3], [3], [5, 5, 1]):
        graphs = torch.tensor(order)
        batch = dataset.attach(packed.batch(graphs), graphs)
        singles = [packed.batch(g[None]) for g in graphs]
        assert list(batch.encodings) == list(ENCODINGS[name].arrays)
        for array in ENCODINGS[name].arrays:
            if array in ENCODINGS[name].offsets:
                expected = compute(name, collate(singles), **arguments)[array]
            else:
                expected = torch.cat(
                    [compute(name, s, graphs=g[None], **arguments)[array] for s, g in zip(singles, graphs)]
                )
            assert batch.encodings[array].dtype == expected.dtype
            torch.testing.assert_close(batch.encodings[array], expected, rtol=1e-5, atol=1e-6)


def test_two_encodings_for_one_array_are_refused(packed):
    for name in ("orthogonal", "random"):
        encode(packed, folder_of(packed), name, {"k": 4})
    with pytest.raises(EncodingError, match="encodings 'orthogonal' and 'random' both provide 'node_identifiers'"):
        EncodedDataset(packed, folder_of(packed), {"orthogonal": {"k": 4}, "random": {"k": 4}})


def rewrite(path, change=lambda header, arrays: None):
    """Rewrites a file after `change` of its header and its arrays (as bytes), with valid digests."""
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    table, arrays = json.loads(content[8:size]), bytearray(content[size:])
    header = json.loads(table.pop("__metadata__")["header"])
    for name, entry in table.items():
        assert header["arrays"][name]["sha256"] == hashlib.sha256(arrays[slice(*entry["data_offsets"])]).hexdigest()
    change(header, arrays)
    header = cache.sealed(header) if "sha256" in header else header
    path.write_bytes(encoding._preamble(table, header, size) + arrays)
    return header


def test_the_digest_is_of_what_is_computed_and_not_of_bits(packed, tmp_path):
    def last_digits(header, arrays):
        arrays[0] ^= 1
        for name, entry in header["arrays"].items():
            size = 4 * np.prod(entry["shape"])
            if name == min(header["arrays"]):
                entry["sha256"] = hashlib.sha256(arrays[:size]).hexdigest()

    requests = {"laplacian": {"k": 3}, "rwse": {"steps": 2}}
    expected = encodings_digest(packed, requests)  # nothing is computed yet
    paths = [encode(packed, folder_of(packed), name, arguments) for name, arguments in requests.items()]
    assert EncodedDataset(packed, folder_of(packed), requests).digest == expected
    before = {name: array.clone() for name, array in load_file(paths[0]).items()}
    rewrite(paths[0], last_digits)  # as with another LAPACK
    assert any(not torch.equal(before[name], array) for name, array in load_file(paths[0]).items())
    assert EncodedDataset(packed, folder_of(packed), requests).digest == expected
    stamp = paths[0].stat().st_mtime_ns
    assert encode(packed, folder_of(packed), "laplacian", {"k": 3}).stat().st_mtime_ns == stamp
    other = make_packed(tmp_path / "data/packed/other", seed=1)
    different = [
        {"laplacian": {"k": 4}, "rwse": {"steps": 2}},
        {"laplacian": {"k": 3}},
        {"laplacian": {"k": 3, "which": "both"}, "rwse": {"steps": 2}},
    ]
    assert len({expected, encodings_digest(other, requests), *(encodings_digest(packed, r) for r in different)}) == 5


def test_a_digest_that_the_header_does_not_give_is_refused(packed):
    path = encode(packed, folder_of(packed), "rwse", {"steps": 3})
    rewrite(path, lambda header, arrays: header.update(digest="0" * 64))
    with refused(DatasetError, file=str(path), value=["algorithm"]):
        EncodedDataset(packed, folder_of(packed), {"rwse": {"steps": 3}})


def test_stale_when_the_data_change(packed, capsys):
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    other = make_packed(packed.folder, seed=1)
    with refused(DatasetError, value=["data"]):
        EncodedDataset(other, folder_of(other), {"laplacian": {"k": 3}})
    encode(other, folder_of(other), "laplacian", {"k": 3})
    assert "computed again: its data changed" in capsys.readouterr().out
    EncodedDataset(other, folder_of(other), {"laplacian": {"k": 3}})


def test_stale_when_the_version_changes(packed, monkeypatch, capsys):
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    monkeypatch.setattr(cache, "version_of", lambda module: 2)
    with refused(DatasetError, value=["algorithm"]):
        EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    assert "computed again: its algorithm changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("cut", "Error while deserializing header"),
        ("header", "Error while deserializing header"),
        ("empty", "Error while deserializing header"),
        ("flip", "wrong checksum of laplacian_eigenvectors"),
        ("library", "the checksum of its header does not match"),
        ("key", "unknown key 'bomputed_by'"),
        ("seal", "unknown key 'sia256'"),
    ],
)
def test_a_damaged_file_is_named_and_computed_again(packed, damage, problem, capsys):
    path = encode(packed, folder_of(packed), "laplacian", {"k": 3})
    good = path.read_bytes()

    def flipped(place: int) -> bytes:
        return good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]

    bad = {
        "cut": good[:-8], "header": b"\xff" * 64 + good[64:], "empty": b"", "flip": flipped(-2 % len(good)),
        "library": flipped(good.index(b"numpy")), "key": flipped(good.index(b"computed_by")),
        "seal": flipped(good.rindex(b'sha256\\": \\"') + 1),
    }[damage]  # fmt: skip
    path.write_bytes(bad)
    with refused(DatasetError, file=str(path)) as error:
        EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    assert f"damaged ({problem}" in error.value.problem
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    assert "computed again" in capsys.readouterr().out
    assert path.read_bytes() == good


def test_the_arrays_are_read_again_only_when_their_file_has_changed(packed, monkeypatch):
    path, read = encode(packed, folder_of(packed), "laplacian", {"k": 3}), []
    whole = cache.damaged
    monkeypatch.setattr(cache, "damaged", lambda *arguments: read.append(1) or whole(*arguments))
    for _ in range(2):
        EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    assert len(read) == 1
    os.utime(path, (1, 1))
    EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    assert len(read) == 2
    assert [p for p in folder_of(packed).iterdir()] == [path]  # a change in this folder would run DVC stages


def test_missing_encoding_states_which_command(packed):
    with refused(DatasetError, file="dataset 'tiny'", place="encoding rwse-steps=4"):
        EncodedDataset(packed, folder_of(packed), {"rwse": {"steps": 4}})


def test_nothing_requested_is_fine(packed):
    batch = packed.batch(torch.arange(2))
    assert EncodedDataset(packed, folder_of(packed), {}).attach(batch, torch.arange(2)).encodings == {}
