"""Predicts what a cluster will offer, guarantee and lose: values in, values out."""
