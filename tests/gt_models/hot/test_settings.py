"""Settings that cannot be."""

import pytest

from tests.gt_models.hot.test_hot import (
    _float64,  # noqa: F401
    build,
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 3}, "multiple of num_heads"),
        ({"v_dim": 9}, "multiple of num_heads"),
        ({"attention": "linear"}, "softmax, kernel"),
        ({"kernel": "relu"}, "generalized"),
        ({"form": "coo"}, "sparse or dense"),
        ({"input_order": 3}, "nodes and edges"),
        ({"name": "hot-released", "degree_embeddings": 4}, "vocabulary sizes"),
        ({"level": "hyperedge", "hyperedge_order": 2, "input_order": 2}, "input_order=1"),
        ({"level": "hyperedge", "hyperedge_order": 1}, "two nodes or more"),
    ],
)
def test_settings_that_cannot_be_say_what_can(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(**arguments)
