"""The page of JSON files agrees with the models of records."""

import pytest
from pydantic import BaseModel

from tests.conftest import ROOT
from tools.docs.json_files import MODELS, keys, page


class Undocumented(BaseModel):
    """A model.

    Attributes:
        known: has a meaning.
    """

    known: int
    unknown: int


def test_the_page_is_up_to_date_and_short():
    text = (ROOT / "docs" / "json.md").read_text()
    assert text == page(), "run: python -m tools.docs.json_files > docs/json.md"
    assert len(text.split()) <= 1500


def test_each_field_of_a_file_has_a_type_and_a_meaning():
    for model in MODELS:
        for key, kind, meaning in keys(model):
            assert meaning, (model, key)
            assert kind != "any", (model, key)


def test_a_field_without_a_meaning_is_an_error():
    with pytest.raises(KeyError, match="unknown"):
        keys(Undocumented)
