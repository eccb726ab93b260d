"""docs/cli.md is the help of the command line."""

from tools.docs.cli import page


def test_every_command_has_an_example():
    text = page()
    commands = [part for part in text.split("\n## ")[1:] if "**Commands**" not in part]
    assert len(commands) > 15
    assert all("Example: gt-bench" in command for command in commands)
