"""Suggestions of names, in the messages of every function that looks a name up."""

import pytest

from gt_models import create_model, model_info
from gt_models.encodings import EncodingError, find_encoding
from gt_models.suggestions import nearest


def test_a_similar_name_is_suggested_and_no_other():
    assert nearest("hiden_dim", ["in_dim", "hidden_dim"]) == " (did you mean 'hidden_dim'?)"
    assert nearest("xyz", ["in_dim", "hidden_dim"]) == ""
    assert nearest("x", []) == ""


def test_models_and_their_arguments():
    with pytest.raises(KeyError, match=r"no model named 'polynormr' \(did you mean 'polynormer'\?\); known: "):
        model_info("polynormr")
    with pytest.raises(TypeError, match=r"has no argument 'hiden_dim' \(did you mean 'hidden_dim'\?\); known: "):
        create_model("gcn", hiden_dim=4)


def test_encodings():
    with pytest.raises(EncodingError, match=r"no encoding named 'rrpw' \(did you mean 'rrwp'\?\); known: "):
        find_encoding("rrpw")
