"""Human-normalised scores."""

import pytest

from rlmem.envs import human_normalized_score
from rlmem.envs.scores import human_random_scores


def test_table_has_the_57_games_and_every_human_beats_random():
    table = human_random_scores()
    assert len(table) == 57
    assert all(human > random for random, human in table.values())


@pytest.mark.parametrize(
    "env_id", ["ALE/RoadRunner", "ALE/RoadRunner-v5", "RoadRunnerNoFrameskip-v4"]
)
def test_random_is_zero_and_human_is_one(env_id):
    random, human = human_random_scores()["road_runner"]
    assert human_normalized_score(env_id, random) == 0.0
    assert human_normalized_score(env_id, human) == 1.0


def test_every_game_of_the_table_is_found_by_its_env_id():
    for game, (random, human) in human_random_scores().items():
        env_id = f"ALE/{game.title().replace('_', '')}"
        assert human_normalized_score(env_id, (random + human) / 2) == pytest.approx(0.5)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MinAtar/Breakout", "ALE/Adventure"])
def test_other_environments_have_none(env_id):
    assert human_normalized_score(env_id, 1.0) is None
