"""The divvy command."""
