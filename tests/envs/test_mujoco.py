"""MuJoCo tasks: each version plays the same again, and leaves nothing in the folder."""

import sys
import warnings

import numpy as np
import pytest

from rlmem.envs import make_env
from rlmem.errors import UserError
from tests.envs.helpers import assert_chained, assert_conforms, assert_same_play, play
from tests.envs.helpers import random_actions as actions_of
from tests.settings import settings

ENVS = ["inverted_pendulum", "reacher", "half_cheetah", "walker2d"]
pytest.importorskip("mujoco")


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("name", ENVS)
def test_a_task_seeded_anew_plays_the_same_again(name, version):
    cfg = settings(f"env={name}", f"env.version={version}").env
    env, other = make_env(cfg, 2), make_env(cfg, 1)
    assert env.spec.env_id.endswith(version)
    actions = actions_of(env, 120)
    first = play(env, 5, actions)
    assert_conforms(env, first[1])
    assert_chained(*first)
    play(env, 8, actions)
    assert_same_play(first, play(env, 5, actions))
    alone = play(other, 5, actions[:, :1])
    np.testing.assert_array_equal(alone[1][-1].observation[0], first[1][-1].observation[0])


def test_making_one_is_silent_and_writes_no_log(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    cfg = settings("env=half_cheetah", "env.version=v4").env
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_env(cfg, 1)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_without_mujoco_the_extra_is_named(monkeypatch):
    for name in [n for n in sys.modules if n.startswith(("mujoco", "gymnasium.envs.mujoco"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError) as caught:
        make_env(settings("env=reacher").env, 1)
    assert str(caught.value) == (
        'env.id=Reacher-v5: a package is missing; pip install "rlmem[mujoco]"'
    )
