"""Run and report a study: python study.py replay_table."""

from rlmem.cli import study_main

if __name__ == "__main__":
    study_main()
