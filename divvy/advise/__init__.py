"""Which profile the pods of a time would need: recorded pods, candidates, a replay, the advice."""
