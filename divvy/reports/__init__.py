"""What becomes of a conformance report after its run: comparisons, and the archive."""
