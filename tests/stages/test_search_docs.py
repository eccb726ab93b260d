"""docs/search.md has the keys that the schema has, and its example is a search."""

import re

import yaml

from stages.search_docs import PAGE, keys, page
from stages.search_section import SearchSection


def test_the_page_is_as_the_schema_says():
    assert page(PAGE.read_text()) == PAGE.read_text(), "run `python -m stages.search_docs`"
    assert keys(SearchSection).count("\n| `") == len(SearchSection.model_fields)
    assert "| None |" not in PAGE.read_text(), "a key without a description"


def test_its_example_is_valid():
    example = yaml.safe_load(re.search(r"```yaml\n(search:.*?)```", PAGE.read_text(), re.S)[1])
    assert SearchSection.model_validate(example["search"]).trials == 30
