"""Suggestions of names, in the messages of every function that looks a name up."""

from gt_models.suggestions import nearest


def test_a_similar_name_is_suggested_and_no_other():
    assert nearest("hiden_dim", ["in_dim", "hidden_dim"]) == " (did you mean 'hidden_dim'?)"
    assert nearest("xyz", ["in_dim", "hidden_dim"]) == ""
    assert nearest("x", []) == ""
    assert nearest("gnc", ["gin", "gcn"]) == " (did you mean 'gcn'?)"
