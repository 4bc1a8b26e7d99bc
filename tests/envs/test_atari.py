"""Atari: protocol, final frames, determinism, the colour twin, errors."""

from types import SimpleNamespace

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from rlmem.envs import atari, make_env
from rlmem.errors import UserError
from tests.envs.helpers import (
    assert_chained,
    assert_conforms,
    assert_same_play,
    atari_cfg,
    play,
    random_actions,
)

NOFRAMESKIP = {"sticky": 0.0, "noop_max": 30, "fire_reset": True}


def test_spec_and_steps_have_the_promised_form():
    env = make_env(atari_cfg("ms_pacman"), 2)
    assert env.spec.env_id == "ALE/MsPacman"
    assert env.spec.frame_shape == (1, 84, 84)
    assert env.spec.observation_shape == (4, 84, 84)
    assert env.spec.frames_per_step == 4
    first, steps = play(env, 1, random_actions(env, 300))
    assert_conforms(env, steps)
    assert_chained(first, steps)
    assert max(step.reward.max() for step in steps) >= 10  # points, not clipped to 1
    env.close()


@pytest.mark.parametrize(
    ("game", "actions"), [("pong", 6), ("breakout", 4), ("road_runner", 18), ("freeway", 3)]
)
def test_action_set_is_the_minimal_one(game, actions):
    assert make_env(atari_cfg(game), 1).spec.num_actions == actions


@pytest.mark.parametrize("protocol", [{}, NOFRAMESKIP])
def test_trajectory_depends_on_seed_and_actions_only(protocol):
    cfg = atari_cfg("road_runner", max_frames=800, **protocol)
    env, other = make_env(cfg, 2), make_env(cfg, 2)
    actions = random_actions(env, 260)
    first = play(env, 11, actions)
    assert sum((s.terminated | s.truncated).sum() for s in first[1]) >= 2
    assert_same_play(first, play(env, 11, actions))
    assert_same_play(first, play(other, 11, actions))
    different = play(env, 12, actions)
    assert any(
        (a.observation != b.observation).any() for a, b in zip(first[1], different[1], strict=True)
    )


def test_environments_of_one_batch_differ_under_the_same_actions():
    env = make_env(atari_cfg(), 2)
    actions = random_actions(env, 100)
    actions[:, 1] = actions[:, 0]
    _, steps = play(env, 0, actions)
    assert any((s.observation[0] != s.observation[1]).any() for s in steps)


@pytest.mark.parametrize(
    ("max_frames", "frame_skip", "length"), [(100, 4, 25), (101, 4, 26), (60, 1, 60)]
)
@pytest.mark.parametrize("noop_max", [0, 30])
def test_max_frames_truncates_after_so_many_emulator_frames(
    max_frames, frame_skip, length, noop_max
):
    cfg = atari_cfg("pong", max_frames=max_frames, frame_skip=frame_skip, noop_max=noop_max)
    env = make_env(cfg, 2)
    _, steps = play(env, 0, random_actions(env, 2 * length))
    ends = [t + 1 for t, s in enumerate(steps) if s.truncated.any()]
    assert ends == [length, 2 * length]
    assert all(s.truncated.all() for s in steps if s.truncated.any())
    assert not any(s.terminated.any() for s in steps)


@pytest.mark.parametrize("game", ["road_runner", "pong"])
def test_final_frame_at_truncation_is_the_next_frame_of_the_untruncated_game(game):
    short, long = (make_env(atari_cfg(game, max_frames=n), 2) for n in (200, 108000))
    actions = random_actions(short, 50)
    first, cut = play(short, 3, actions)
    _, whole = play(long, 3, actions)
    assert cut[-1].truncated.all()
    np.testing.assert_array_equal(cut[-1].next_observation, whole[-1].observation)
    assert (cut[-1].observation != cut[-1].next_observation).any()
    np.testing.assert_array_equal(cut[-1].observation, first)  # no no-ops: the same start


def test_truncation_of_one_environment_leaves_the_other_alone():
    endless = make_env(atari_cfg("breakout"), 2)
    actions = random_actions(endless, 300)
    _, whole = play(endless, 4, actions)
    short, long = sorted((0, 1), key=lambda e: [s.terminated[e] for s in whole].index(True))
    limit = [s.terminated[long] for s in whole].index(True) - 3
    assert not whole[limit - 1].terminated.any()
    # The short game ended before the limit and started anew, so only the long one is truncated.
    _, cut = play(make_env(atari_cfg("breakout", max_frames=4 * limit), 2), 4, actions)
    assert next(t + 1 for t, s in enumerate(cut) if s.truncated[long]) == limit
    assert not any(s.truncated[short] for s in cut[: limit + 10])
    for a, b in zip(cut[: limit + 10], whole, strict=False):
        np.testing.assert_array_equal(a.next_observation[short], b.next_observation[short])
        np.testing.assert_array_equal(a.observation[short], b.observation[short])
        assert a.reward[short] == b.reward[short]
    assert (cut[limit - 1].observation[long] != whole[limit - 1].observation[long]).any()


def test_final_frame_at_game_over_is_the_one_that_ale_py_gives():
    env = make_env(atari_cfg("breakout"), 2)
    reference = AtariVectorEnv(
        "breakout",
        2,
        num_threads=1,
        repeat_action_probability=0.25,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        stack_num=1,
        noop_max=0,
        reward_clipping=False,
        use_fire_reset=False,
    )
    actions = random_actions(env, 600)
    env.reset(4)
    reference.reset(seed=np.array(atari.env_seeds(4, 2)))
    for action in actions:
        step, expected = env.step(action), reference.step(action)
        np.testing.assert_array_equal(step.next_observation, expected[0])
        np.testing.assert_array_equal(step.terminated, expected[2])
        if step.terminated.any():
            break
    assert step.terminated.any()
    assert not step.terminated.all()  # the row that goes on keeps its own frame
    ended = step.terminated
    np.testing.assert_array_equal(step.observation[~ended], step.next_observation[~ended])
    assert (step.observation[ended] != step.next_observation[ended]).any()


def test_arrays_of_a_step_are_never_written_again():
    env = make_env(atari_cfg(max_frames=80), 2)
    _, steps = play(env, 0, random_actions(env, 30))
    copies = [s.next_observation.copy() for s in steps]
    play(env, 1, random_actions(env, 30))
    for step, copy in zip(steps, copies, strict=True):
        np.testing.assert_array_equal(step.next_observation, copy)


def test_a_lost_life_terminates_without_restarting_the_game():
    plain, lives = (
        make_env(atari_cfg("breakout", sticky=0.0, episodic_life=on), 1) for on in (False, True)
    )
    actions = random_actions(plain, 200)
    _, whole = play(plain, 1, actions)
    _, cut = play(lives, 1, actions)
    game_over = next(t for t, s in enumerate(whole) if s.terminated[0])
    ends = [t for t, s in enumerate(cut) if s.terminated[0] and t <= game_over]
    assert len(ends) == 5
    assert ends[-1] == game_over
    for t in range(game_over + 1):
        np.testing.assert_array_equal(cut[t].next_observation, whole[t].next_observation)
        assert cut[t].reward == whole[t].reward


@pytest.mark.parametrize("protocol", [{}, NOFRAMESKIP])
def test_colour_twin_stays_in_step(protocol):
    """`step` itself raises when the twin's reward or end differs; the pictures must agree too."""
    cfg = atari_cfg("road_runner", max_frames=1000, screen_size=84, **protocol)
    env, bare = make_env(cfg, 2, render=True), make_env(cfg, 2)
    actions = random_actions(env, 500)
    env.reset(7), bare.reset(7)
    ends = 0
    for action in actions:
        step, expected = env.step(action), bare.step(action)
        np.testing.assert_array_equal(step.observation, expected.observation)
        ends += bool(step.terminated[0] | step.truncated[0])
        picture = env.render()
        assert picture.shape == (210, 160, 3)
        assert picture.dtype == np.uint8
        grey = picture @ np.array([0.299, 0.587, 0.114])
        assert abs(grey.mean() - step.observation[0].mean()) < 2
    assert ends >= 2
    assert (picture[..., 0] != picture[..., 2]).any()


def test_twin_out_of_step_is_reported(monkeypatch):
    env = make_env(atari_cfg("pong"), 1, render=True)
    env.reset(0)
    wrong = (np.zeros((1, 1, 210, 160, 3), np.uint8), np.array([7]), np.zeros(1), np.zeros(1), {})
    monkeypatch.setattr(env, "_twin", SimpleNamespace(step=lambda action: wrong))
    with pytest.raises(RuntimeError, match=r"out of step"):
        env.step(np.array([0]))


def test_render_needs_render_true():
    with pytest.raises(RuntimeError, match=r"render=True"):
        make_env(atari_cfg("pong"), 1).render()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("road_runer", "road_runner"),
        ("RoadRunner", "road_runner"),
        ("ALE/MsPacman-v5", "ms_pacman"),
        ("space-invaders", "space_invaders"),
    ],
)
def test_unknown_game_names_the_nearest_in_one_line(given, meant):
    with pytest.raises(UserError, match=rf"did you mean {meant}\b") as caught:
        make_env(atari_cfg(given), 1)
    assert str(caught.value).startswith(f"env.game={given}: no such Atari game; ")
    assert "\n" not in str(caught.value)


def test_game_that_resembles_nothing_still_gives_examples():
    with pytest.raises(UserError, match=r"no such Atari game; e\.g\. "):
        make_env(atari_cfg("zzzzqqqq"), 1)


def test_game_that_is_not_set_is_refused():
    with pytest.raises(UserError, match=r"env.game is not set"):
        make_env(atari_cfg(None), 1)


def test_game_without_single_player_mode_is_refused():
    """ale-py ends the whole process when it loads one."""
    with pytest.raises(UserError, match=r"env.game=combat: .*no single-player"):
        make_env(atari_cfg("combat"), 1)


@pytest.mark.parametrize("content", [None, b"not a cartridge"])
def test_missing_or_damaged_rom_is_one_line(tmp_path, monkeypatch, content):
    if content is not None:
        (tmp_path / "pong.bin").write_bytes(content)
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(UserError, match=r"env.game=pong: its ROM cannot be used") as caught:
        make_env(atari_cfg("pong"), 1)
    assert "unset ALE_ROMS_DIR" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame_skip": 0}, "env.frame_skip=0: must be at least 1"),
        ({"screen_size": 0}, "env.screen_size=0"),
        ({"noop_max": -1}, "env.protocol.noop_max=-1"),
        ({"max_frames": 0}, "env.protocol.max_frames=0"),
        ({"sticky": 1.5}, "env.protocol.sticky=1.5"),
    ],
)
def test_options_that_ale_py_does_not_survive_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        make_env(atari_cfg("pong", **change), 1)


@pytest.mark.parametrize(("size", "rows"), [(160, [35, 195]), (42, [34, 194])])
def test_rows_of_the_screen_are_those_of_the_emulator(size: int, rows: list[int]) -> None:
    """The same game seen whole and in part; a smaller screen holds the means of areas."""
    cfg = atari_cfg("pong", screen_size=size, rows=rows)
    part, whole = make_env(cfg, 1), make_env(cfg, 1)
    whole._part = None
    actions = random_actions(part, 200)
    (first, steps), (all_first, all_steps) = play(part, 5, actions), play(whole, 5, actions)
    assert first.shape == (1, 1, size, size)
    seen = [first, *(s.observation for s in steps), *(s.next_observation for s in steps)]
    screens = [all_first, *(s.observation for s in all_steps)]
    screens += [s.next_observation for s in all_steps]
    for small, screen in zip(seen, screens, strict=True):
        kept = screen[0, 0, rows[0] : rows[1]].astype(np.float64)
        # Each pixel 21 times as wide and high can be averaged over whole numbers of them.
        fine = kept.repeat(21, 0).repeat(21, 1) if size == 42 else kept
        side = len(fine) // size
        means = fine.reshape(size, side, size, side).mean((1, 3))
        assert np.abs(small[0, 0] - means).max() <= 0.5001
    part.close()
    whole.close()


def test_rows_beyond_the_screen_are_refused() -> None:
    from tests.settings import settings

    with pytest.raises(UserError, match=r"env.rows=\[100, 300\]: must be two rising numbers"):
        settings("env=pong", "env.rows=[100,300]")
