"""Nested settings as dotted keys."""

from gt_bench.utils.nested import flat


def test_keys_are_dotted_in_order_and_an_empty_mapping_is_a_value():
    content = {"b": {"d": 1, "c": {"e": [2, 3]}}, "a": None, "empty": {}}
    assert list(flat(content)) == [("b.d", 1), ("b.c.e", [2, 3]), ("a", None), ("empty", {})]
    assert list(flat({"x": 1}, "model.")) == [("model.x", 1)]
