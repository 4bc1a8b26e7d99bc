"""Scoring a policy on whole episodes."""

import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmem.collect import rollout
from rlmem.collect.rollout import (
    EvaluationResult,
    Video,
    evaluate_policy,
    evaluation_envs,
    need_video,
)
from rlmem.envs import make_env
from rlmem.errors import UserError
from tests.collect.helpers import REWARD, ScriptedEnv, policy
from tests.envs.helpers import gym_cfg


def test_each_env_plays_its_share_so_that_long_episodes_count_as_well() -> None:
    result = evaluate_policy(ScriptedEnv(2, 50), policy, episodes=5, epsilon=0.0, seed=0)
    assert sorted(result.lengths) == [2, 2, 2, 50, 50]


def test_a_return_is_the_sum_of_unclipped_rewards() -> None:
    result = evaluate_policy(ScriptedEnv(4, 6), policy, episodes=2, epsilon=0.0, seed=0)
    assert result.returns == [4 * REWARD, 6 * REWARD]


def test_an_episode_without_end_is_scored_as_it_stands_and_said(monkeypatch) -> None:
    monkeypatch.setattr(rollout, "LONGEST", 30)
    result = evaluate_policy(ScriptedEnv(4, 10**9), policy, episodes=4, epsilon=0.0, seed=0)
    assert result.lengths == [4, 4, 30, 30]
    assert result.returns == [4 * REWARD, 4 * REWARD, 30 * REWARD, 30 * REWARD]
    assert result.remark.startswith("evaluation: 2 episodes did not end within 30 env steps")
    ended = evaluate_policy(ScriptedEnv(4, 30), policy, episodes=4, epsilon=0.0, seed=0)
    assert ended.lengths == [4, 4, 30, 30]
    assert ended.remark is None


def test_a_reward_that_is_no_number_has_no_score() -> None:
    env = ScriptedEnv(4, 6)
    step = env.step

    def lost(action: np.ndarray) -> Any:
        found = step(action)
        return replace(found, reward=np.array([1.0, np.nan]))

    env.step = lost
    said = "evaluation: env: environment 1 gave the reward nan in step 1 of an episode"
    with pytest.raises(UserError, match=said):
        evaluate_policy(env, policy, episodes=2, epsilon=0.0, seed=0)


def test_an_observation_that_is_no_number_has_no_score() -> None:
    env = ScriptedEnv(4, 6)
    step = env.step
    env.step = lambda action: replace(
        step(action), next_observation=np.array([[0.0] * 4, [np.inf] * 4], np.float32)
    )
    said = "env: environment 1 gave an observation with inf in it after step 1 of an episode"
    with pytest.raises(UserError, match=said):
        evaluate_policy(env, policy, episodes=2, epsilon=0.0, seed=0)


def test_mean_and_deviation_are_over_the_episodes() -> None:
    result = EvaluationResult([1.0, 2.0, 6.0], [1, 1, 1])
    assert result.mean == 3.0
    assert result.std == pytest.approx(np.std([1, 2, 6]))


def test_the_first_episode_of_env_0_is_filmed() -> None:
    pictures: list[np.ndarray] = []
    seen: list[np.ndarray] = []

    def note(frame: np.ndarray, observation: np.ndarray) -> None:
        pictures.append(frame)
        seen.append(observation.copy())

    env = ScriptedEnv(3, 9)
    evaluate_policy(env, policy, episodes=4, epsilon=0.0, seed=0, on_frame=note)
    assert {row.shape for row in seen} == {env.spec.observation_shape}
    assert [int(picture[0, 0, 0]) for picture in pictures] == [0, 1, 2]


def test_the_policy_is_asked_with_the_given_epsilon() -> None:
    asked = set()

    def spy(observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        asked.add(epsilon)
        return policy(observation, epsilon, rng)

    evaluate_policy(ScriptedEnv(3), spy, episodes=2, epsilon=0.125, seed=0)
    assert asked == {0.125}


def test_a_seed_decides_the_scores() -> None:
    env = make_env(gym_cfg(), 2)
    a, b, c = (
        evaluate_policy(env, policy, episodes=4, epsilon=0.5, seed=seed).returns
        for seed in (1, 1, 2)
    )
    assert a == b != c


@pytest.mark.parametrize(("episodes", "envs"), [(1, 1), (5, 5), (20, 8)])
def test_at_most_eight_envs_play(episodes: int, envs: int) -> None:
    assert evaluation_envs(episodes) == envs


def test_a_video_is_written_enlarged_by_whole_factors(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    video = Video(tmp_path / "videos" / "a.mp4", fps=10)
    for _ in range(5):
        video.append(np.zeros((210, 160, 3), np.uint8), np.zeros(4))
    video.close()
    assert imageio.mimread(tmp_path / "videos" / "a.mp4")[0].shape == (420, 320, 3)


def test_a_video_without_room_is_one_line_and_the_game_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("imageio_ffmpeg")
    noise = np.random.default_rng(0).integers(0, 255, (300, 320, 320, 3), np.uint8)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # of the packing program too
    try:
        video = Video(tmp_path / "a.mp4", 30)
        for frame in noise:
            video.append(frame, np.zeros(4))
        video.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert video.failed
    said = f"video: {tmp_path}/a.mp4 cannot be written (is there room?)\n"
    assert capfd.readouterr().out.count(said) == 1


def test_a_video_with_something_in_its_way_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("imageio_ffmpeg")
    (tmp_path / "videos").touch()
    (tmp_path / "a.mp4").mkdir()
    for path in (tmp_path / "videos" / "a.mp4", tmp_path / "a.mp4"):
        video = Video(path, 30)
        video.append(np.zeros((32, 32, 3), np.uint8), np.zeros(1))
        video.close()
        assert video.failed
        assert capfd.readouterr().out.startswith(f"video: {path} cannot be written (")


def test_films_need_the_package_that_packs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match=r"^video=true needs imageio-ffmpeg: pip install 'rlmem\["):
        need_video("video=true")


def test_a_picture_of_the_observation_stands_beside_the_game(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")

    def beside(observation: np.ndarray) -> np.ndarray:
        return np.full((420, 100, 3), int(observation[0]), np.uint8)

    video = Video(tmp_path / "a.mp4", 10, beside)
    for shade in (0, 200):
        video.append(np.zeros((320, 320, 3), np.uint8), np.full(4, shade))
    video.close()
    dark, light = imageio.mimread(tmp_path / "a.mp4")
    assert dark.shape == (420, 422, 3)
    assert dark[:, 340:].mean() < 20
    assert light[:, 340:].mean() > 180
