"""docs/search.md has the keys of the schema, and its example is a valid search."""

import re

import yaml

from gt_bench.config.search_section import SearchSection
from tools.docs.search import PAGE


def test_its_example_is_valid():
    example = yaml.safe_load(re.search(r"```yaml\n(search:.*?)```", PAGE.read_text(), re.S)[1])
    assert SearchSection.model_validate(example["search"]).trials == 30
