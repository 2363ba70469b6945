"""Devices for containers: CDI specification, driver files, hook."""
