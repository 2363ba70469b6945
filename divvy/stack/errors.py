"""What can be wrong with a project or a stack file."""


class StackError(Exception):
    """A project or stack file is missing or wrong; the text says what and where."""
