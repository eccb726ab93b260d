"""docs/search.md has the keys of the schema, and its example is a valid search."""

import re

import yaml

from gt_bench.config.search_section import SearchSection
from tools.docs.search import PAGE, keys, page


def test_the_page_is_as_the_schema_states():
    assert page(PAGE.read_text()) == PAGE.read_text(), "run `python -m tools.docs.search`"
    assert keys(SearchSection).count("\n| `") == len(SearchSection.model_fields)
    assert "| None |" not in PAGE.read_text(), "a key without a description"


def test_its_example_is_valid():
    example = yaml.safe_load(re.search(r"```yaml\n(search:.*?)```", PAGE.read_text(), re.S)[1])
    assert SearchSection.model_validate(example["search"]).trials == 30
