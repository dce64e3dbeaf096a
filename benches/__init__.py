"""Benchmarks of interlock beside what else carries a changing value to many consumers. See `README.md`."""
