"""docs/reliability.md names existing tests."""

import re

from tests.faults.page import FAULTS, ROOT


def test_every_test_that_the_page_names_is_there():
    page = (ROOT / "docs/reliability.md").read_text()
    for fault, happens, tests in FAULTS:
        assert f"| {fault} | {happens} |" in page, "write the page: python -m tests.faults --only tests"
        for test in tests:
            file, _, name = test.partition("::")
            assert f"`{test.removeprefix('tests/')}`" in page
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.M), test
