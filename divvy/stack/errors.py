"""Errors of projects and stack files."""


class StackError(Exception):
    """A project or stack file is missing or wrong; the text says what and where."""
