"""Metrics of a node: gauges that the agent fills again for each scrape."""
