"""Score a run's checkpoint: python evaluate.py run=outputs/... episodes=10 video=true."""

from rlmem.cli import evaluate_main

if __name__ == "__main__":
    evaluate_main()
