"""A value with origin `printed` equals the published one in the list of hyperparameters (shared/papers)."""

import inspect
from fnmatch import fnmatch
from functools import cache
from typing import Any

import pytest
import yaml

from gt_models.registry import model_info
from tests.conftest import SHARED
from tests.recipes.shipped import PATHS, cell, recipe

FILE = SHARED / "papers" / "recipes.yaml"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} does not exist")
POLYNORMER = (
    "computer",
    "photo",
    "cs",
    "physics",
    "wikics",
    "roman-empire",
    "amazon-ratings",
    "minesweeper",
    "tolokers",
    "questions",
)
# cells -> the id of their published values
PLACES = {
    **{f"polynormer/{name}/polynormer{row}": f"polynormer/{name}" for name in POLYNORMER for row in ("", "-r")},
    **{f"polynormer/{name}/polynormer-v2": f"polynormer/{name}" for name in (*POLYNORMER[:2], *POLYNORMER[4:8])},
    "polynormer/ogbn-arxiv-undirected/polynormer*": "polynormer/ogbn-arxiv",
    **{f"polynormer/{name}/polynormer*": f"polynormer/{name}" for name in ("ogbn-products", "pokec")},
    "ppgt/zinc*/ppgt": "ppgt/zinc",
    "ppgt/zinc/ppgt-as-released": "ppgt/zinc",
    "ppgt/zinc*/ppgt-as-printed": "ppgt/zinc",
    "ppgt/peptides-func/ppgt*": "ppgt/peptides-func",
    **{
        f"ppgt/{name}/ppgt": f"ppgt/{name}"
        for name in ("mnist", "cifar10", "pattern", "cluster", "peptides-struct", "pascalvoc-sp")
    },
    "ppgt/pcqm4mv2/ppgt-small": "ppgt/pcqm4mv2",
    "ppgt/ogbn-arxiv/ppgt*": "ppgt/ogbn-arxiv",
    "ppgt/brec/ppgt": "ppgt/brec",
    **{
        f"edge-transformer/{n}/edge*": f"edge_transformer/{n}"
        for n in ("zinc", "alchemy", "qm9", "cornell", "texas", "wisconsin", "brec")
    },
    "edge-transformer/zinc-reconstructed/edge*": "edge_transformer/zinc",
    "tokengt/pcqm4mv2/tokengt-lap": "tokengt/pcqm4mv2-lap",
    "tokengt/pcqm4mv2/tokengt-orf": "tokengt/pcqm4mv2-orf",
    "tokengt/pcqm4mv2/transformer": "tokengt/pcqm4mv2-no-ids",
    "tokengt/pcqm4mv2/tokengt-lap-performer*": "tokengt/pcqm4mv2-lap-performer",
    "tokengt/ba-*/*": "tokengt/basis-approximation",
    "tokengt/*/tokengt-near-orf-performer": "tokengt/transductive-near-orf-performer",
}
# published name -> keys of a recipe; the first one that the recipe or its model has counts
KEYS = {
    "lr": ["optimizer.lr"],
    "peak_lr": ["optimizer.lr"],
    "weight_decay": ["optimizer.weight_decay"],
    "grad_clip_norm": ["optimizer.clip_norm"],
    "epochs": ["epochs"],
    "batch_size": ["batch.graphs"],
    "warmup_epochs": ["phases.0", "schedule.warmup"],
    "local_to_global_epochs": ["phases.1"],
    "warmup_steps": ["schedule.warmup"],
    "warmup_iterations": ["schedule.warmup"],
    "hidden_dim": ["model.hidden_dim"],
    "dim": ["model.hidden_dim"],
    "heads": ["model.num_heads"],
    "layers": ["model.num_layers"],
    "blocks": ["model.num_layers"],
    "local_layers": ["model.num_local_layers"],
    "global_layers": ["model.num_global_layers"],
    "dropout": ["model.dropout"],
    "input_dropout": ["model.dropout"],
    "attention_dropout": ["model.attn_dropout"],
    "stochastic_depth": ["model.drop_path"],
    "eigenvector_dropout": ["model.eigenvector_dropout"],
    "head_dim": ["model.head_dim"],
    "dp": ["model.node_id_dim"],
    "stem_mlp_dim": ["model.stem_dim"],
    "stem_edge_dim": ["model.pair_dim"],
    "stem_ffn_blocks": ["model.num_stem_ffn"],
    "stem_ffn_expansion": ["model.stem_ffn_expansion"],
    "ffn_expansion": ["model.ffn_expansion"],
    "spe_bases": ["model.num_frequencies"],
    "pe_dim": ["encodings.rrwp.steps"],
    "head_layers": ["model.head_layers"],
    "betas": ["optimizer.betas"],
    "seeds": ["seeds"],
}


@cache
def printed() -> dict[str, dict[str, Any]]:
    """id -> name -> value, inherited values included."""
    entries = {
        entry["id"]: entry
        for entry in yaml.load(FILE.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))["recipes"]
    }

    def values(name: str) -> dict[str, Any]:
        entry = entries[name]
        above = values(entry["inherits"]) if entry.get("inherits") else {}
        return above | {key: value["value"] for key, value in entry["values"].items()}

    return {name: values(name) for name in entries}


def value_at(content, key: str) -> Any:
    """The recipe's value at a dotted key, else the default of the constructor; None if there is no such key."""
    if key.startswith("phases."):
        number = int(key.split(".")[1])
        return content.phases[number].epochs if number < len(content.phases) else None
    place: Any = content.model_dump(mode="json")
    for part in key.split("."):
        if not isinstance(place, dict) or part not in place:
            parameter = inspect.signature(model_info(content.model.name).cls).parameters.get(part)
            return parameter.default if key.startswith("model.") and parameter else None
        place = place[part]
    return place


def origin_of(content, key: str) -> str:
    """The narrowest origin that covers a key."""
    parts = ("phases" if key.startswith("phases.") else key).split(".")
    prefixes = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((content.origin[p] for p in [*prefixes, "all"] if p in content.origin), "")


@pytest.mark.parametrize("path", [p for p in PATHS if any(fnmatch(cell(p), place) for place in PLACES)], ids=cell)
def test_values_called_printed_are_the_printed_ones(path):
    content = recipe(path)
    compared = 0
    for name in {number for place, number in PLACES.items() if fnmatch(cell(path), place)}:
        for key, value in printed()[name].items():
            if not isinstance(value, int | float | list):
                continue
            places = [place for place in KEYS.get(key, ()) if value_at(content, place) is not None]
            if places and origin_of(content, places[0]).startswith("printed"):
                compared += 1
                assert value_at(content, places[0]) == value, f"{places[0]}: {key} is printed as {value}"
    assert compared >= 3, f"{compared} of what is printed was found in the recipe"


def test_the_list_is_about_cells_and_entries():
    for place, name in PLACES.items():
        assert name in printed()
        assert any(fnmatch(cell(path), place) for path in PATHS), place
