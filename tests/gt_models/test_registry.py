"""Names, arguments and metadata of models."""

import tomllib
from importlib.metadata import EntryPoint

import pytest

from gt_models import create_model, list_models, model_info, registry
from tests.conftest import ROOT


def test_trained_models_are_loaded_by_whom_is_registered_else_by_an_entry_point(monkeypatch):
    found = []
    monkeypatch.setattr(registry, "_PRETRAINED", [])
    monkeypatch.setattr(registry, "entry_points", lambda group: found if group == "gt_models.pretrained" else [])
    with pytest.raises(ValueError, match="no installed package loads trained models"):
        create_model("mlp", pretrained="a")
    found.append(EntryPoint("other", "builtins:max", registry.PRETRAINED))
    assert create_model("mlp", pretrained="a") == "mlp"
    registry.register_pretrained("builtins:min")
    assert create_model("mlp", pretrained="a") == "a"
    with pytest.raises(KeyError, match="no model named 'mpl'"):
        create_model("mpl", pretrained="a")


def test_the_benchmark_declares_and_registers_the_same_loader():
    import gt_bench  # noqa: F401

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["gt_models.pretrained"]
    assert list(declared.values()) == [registry._PRETRAINED[0].value]
    assert registry.pretrained_loader().__name__ == "model_of"


def test_the_library_does_not_name_the_benchmark():
    """Not even in a string, which could be used for an import."""
    assert not [path for path in (ROOT / "gt_models").rglob("*.py") if "gt_bench" in path.read_text()]


def test_every_model_has_a_card():
    for name in list_models():
        card = model_info(name)
        if not card.cls.__module__.startswith("gt_models.baselines."):
            assert card.expressivity != "not stated", f"{name} has no entry in gt_models/metadata.py"
        assert "https://" in card.paper or card.paper.startswith("none: "), f"{name}: no link to its paper"
        assert card.cost
        assert card.levels
    shown = str(model_info("edge-transformer"))
    assert "n^3 d" in shown
    assert "at least 3-WL" in shown
    assert "hidden_dim: int = 64" in shown
