"""The record of a run, for people and machines."""
