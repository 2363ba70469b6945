"""Proves on live nodes what the plan promised."""
