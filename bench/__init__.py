"""Figures of a running platform: `python -m bench [NAME…]` prints a table and writes build/bench.json."""
