"""The cluster under test, and the pods that the suite runs on it."""
