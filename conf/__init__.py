"""Hydra configuration of rlmem, installed as `rlmem.conf`."""
