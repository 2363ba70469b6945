"""Pods at work: every device at once, one more than there are, neighbours, idle holders."""
