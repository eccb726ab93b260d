"""Errors that a user can mend: the message is all that is shown (stages/command.py), so it names the file and the remedy."""


class UserError(Exception):
    """What a user can mend. A room has a subclass of its own, where somebody tells its errors from others."""


class DatasetError(UserError, ValueError):
    """Data that are not what they should be; the message says what and where."""
