"""The exit codes of commands that do not simply succeed."""

FAILED, CHANGES, NOTHING_CHECKED, REQUIRED_NOT_CHECKED, INTERRUPTED = 1, 2, 2, 3, 130
