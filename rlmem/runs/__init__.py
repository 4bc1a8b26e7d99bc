"""What the commands do: train a run, score it, resume it."""
