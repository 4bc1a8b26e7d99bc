"""rlmem: the memory of deep RL agents, measured in bytes."""

__version__ = "0.1.0"
