"""Faults on purpose: `make torture`, or one case again by `python -m tests.torture CLASS SEED`.

Each class is a module with `trial(rng, folder)`, which tries one case and raises AssertionError if
rlmem did not keep its promise (docs/reliability.md). A trial runs in a process of its own.
"""
