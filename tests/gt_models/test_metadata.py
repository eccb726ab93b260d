"""What is stated about each model."""

from gt_models import list_models, model_info


def test_every_model_has_a_card():
    for name in list_models():
        card = model_info(name)
        if not card.cls.__module__.startswith("gt_models.baselines."):
            assert card.expressivity != "not stated", f"{name} has no entry in gt_models/metadata.py"
        assert "http" in card.paper or card.paper.startswith("none: "), f"{name}: no link to its paper"
        assert card.cost
        assert card.levels
    shown = str(model_info("edge-transformer"))
    assert "n^3 d" in shown
    assert "at least 3-WL" in shown
    assert "hidden_dim: int = 64" in shown
