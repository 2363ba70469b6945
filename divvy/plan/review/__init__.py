"""The review: what a change of stack files means, for whom."""
