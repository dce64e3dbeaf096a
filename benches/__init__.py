"""Benchmarks of interlock beside what else carries a changing value, or items of work. See `README.md`."""
