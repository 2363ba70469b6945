"""Metrics of a node: gauges that the agent fills anew for each scrape."""
