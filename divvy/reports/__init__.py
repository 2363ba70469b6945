"""Conformance reports after their run: comparisons, and the archive."""
