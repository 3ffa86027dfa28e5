"""Peers on the same data, each in a process of its own: `python benchmarks/peers/run.py`."""
