"""Human-normalised scores of the 57 Atari games, from the table in atari_human_random.csv.

The table's random and human scores are the no-op-start set (episodes of at most 30 minutes).
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files


@cache
def human_random_scores() -> dict[str, tuple[float, float]]:
    """Game name (as ale-py's ROMs, "road_runner") -> (random score, human score)."""
    text = (files("rlmem.envs") / "atari_human_random.csv").read_text(encoding="utf-8")
    return {
        row["game"]: (float(row["random"]), float(row["human"]))
        for row in csv.DictReader(text.splitlines())
    }


def human_normalized_score(env_id: str, score: float) -> float | None:
    """(score - random) / (human - random): 0 is random play, 1 a human's.

    Args:
        env_id: "ALE/RoadRunner"; a version may follow ("-v5", "NoFrameskip-v4").
        score: unclipped return of full episodes, in points.

    Returns:
        The normalised score, or None if `env_id` is none of the 57 games.
    """
    name = re.sub(r"((NoFrameskip|Deterministic)?-v\d+)$", "", env_id.removeprefix("ALE/"))
    for game, (random, human) in human_random_scores().items():
        if game.replace("_", "") == name.lower():
            return (score - random) / (human - random)
    return None
