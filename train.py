"""Train an agent with a memory: python train.py memory=gwr env=road_runner."""

from rlmem.cli import train_main

if __name__ == "__main__":
    train_main()
