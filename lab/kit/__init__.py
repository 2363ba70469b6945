"""The hardware kit: one folder that shows on a machine with a GPU what Divvy does there."""
