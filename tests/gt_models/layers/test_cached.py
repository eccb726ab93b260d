"""A cached value that was computed in inference mode can be used in training."""

import torch

from gt_models.layers.cached import cached_property, outside_inference_mode


class Counts:
    calls = 0

    @cached_property
    def value(self) -> torch.Tensor:
        """Documented."""
        self.calls += 1
        return torch.ones(2)


def test_computed_once_and_stored_as_an_attribute():
    counts = Counts()
    assert counts.value is counts.value
    assert (counts.calls, "value" in counts.__dict__, Counts.value.__doc__) == (1, True, "Documented.")


def test_made_outside_of_inference_mode():
    with torch.inference_mode():
        assert not outside_inference_mode(torch.ones, 2).is_inference()
        assert not Counts().value.is_inference()
        assert torch.ones(2).is_inference()
