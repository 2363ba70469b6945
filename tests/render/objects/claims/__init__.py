"""Tests of this room share its API server."""
