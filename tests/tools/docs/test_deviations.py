"""The page of deviations agrees with the code."""

from tools.docs.deviations import find_marks


def test_a_mark_with_its_further_lines_is_found(tmp_path):
    (tmp_path / "gt_models").mkdir()
    (tmp_path / "gt_models" / "a.py").write_text(
        "x = 1\n# unstated: the width;\n# from the scripts\ny = 2  # deviates: a sign\n"
    )
    assert find_marks(tmp_path) == [
        ("unstated", "gt_models/a.py", "the width; from the scripts"),
        ("deviates", "gt_models/a.py", "a sign"),
    ]
