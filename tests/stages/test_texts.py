import pytest

from stages.texts import bytes_text, hours, markdown_line


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.1234, "0.123 s"), (119, "119 s"), (120, "2.0 min"), (7200, "2.0 h"), (400 * 86400, "400.0 d")]
)
def test_seconds_have_the_largest_unit_of_which_there_are_two(seconds, said):
    assert hours(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 B"), (1000, "1,000 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB"), (3000 << 30, "3,000 GiB")]
)
def test_bytes_have_binary_units(size, said):
    assert bytes_text(size) == said


def test_a_cell_cannot_end_the_row():
    assert markdown_line(["a|b", "c\nd"]) == r"| a\|b | c d |"
