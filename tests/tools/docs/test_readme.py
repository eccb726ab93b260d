"""The table of results in README.md equals that of docs/results.md."""

from tests.conftest import ROOT
from tools.docs.readme import with_results


def test_the_table_is_up_to_date():
    readme, results = (ROOT / "README.md").read_text(), (ROOT / "docs/results.md").read_text()
    assert with_results(readme, results) == readme, "run: python -m tools.docs.readme"


def test_an_old_table_is_replaced():
    readme = (ROOT / "README.md").read_text()
    other = "# Results\n\n| paper | numbers |\n| --- | ---: |\n| one | 3 |\n\nText.\n"
    assert "\n\n| paper | numbers |\n| --- | ---: |\n| one | 3 |\n\n<!-- end" in with_results(readme, other)
