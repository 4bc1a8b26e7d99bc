"""Each mistake of a user becomes one line with the override, the reason and what would work."""

import pytest
from omegaconf import DictConfig, OmegaConf

from rlmem.config import check, check_evaluate, compose, run_hydra
from rlmem.errors import UserError

MISTAKES = {
    # misspelt names
    "paths=foo": "paths=foo: has keys of its own; write paths.output_dir=foo",
    "=3": "=3: '' is not the name of a key",
    "~resume": "~resume: no such key, or it has no value; a key is set back by resume=null",
    "memory=grw": "memory=grw: no such memory; did you mean gwr? Available: cer, dnd, gbmr, gcmr",
    "logger=tensorboard": "logger=tensorboard: no such logger; available: csv, wandb",
    "logger=[csv,wandbb]": "logger=wandbb (in logger=[csv,wandbb]): no such logger; did you mean w",
    "env=road_runer": "env=road_runer: no such env; did you mean road_runner?",
    "env=seaquest": "any other: env=atari env.game=seaquest, env=gym env.id=seaquest,",
    "env=pong env/protocol=machados": "env/protocol=machados: no such protocol; did you mean mac",
    "memroy=gwr": "memroy=gwr: no such key; did you mean memory?",
    "memory.capcity=10": "memory.capcity=10: no such key in memory; did you mean memory.capacity?",
    "capacity=10": "capacity=10: no such key; did you mean memory.capacity?",
    "env/protocl=x": "env/protocl=x: no such group; did you mean env/protocol?",
    "++memory.capcity=10": "memory.capcity: no such key, nothing reads it; did you mean memory.cap",
    "+foo=1": "foo: no such key, nothing reads it; leave it out",
    "agent.loss=mes": "agent.loss=mes: no such loss; did you mean mse? Available: huber, mse",
    "trainer.precision=bf16": "trainer.precision=bf16: no such precision; available: 32-true, bf1",
    # keys of another choice
    "env=cartpole env/protocol=machado": "has no protocol, leave it out; it goes with env=atari",
    "experiment=atari_100k_der env=minatar_breakout": "atari_100k_der: chooses env/protocol, which",
    "env=cartpole env.game=pong": "env.game=pong: no such key in env as chosen; it goes with env=",
    "memory.contexts=4": "memory.contexts=4: no such key in memory as chosen; it goes with memory=",
    "memory=per memory.alpha=.5": "no such key in memory; did you mean memory.sampler.alpha?",
    "memory.sampler.alpha=.5": "it goes with memory/sampler=prioritized or memory/sampler=rank",
    "memory/sampler=rank memory.sampler.eps=1": "it goes with memory/sampler=prioritized",
    "logger.wandb.project=x": "logger.wandb.project=x: no such key in logger as chosen; it goes wi",
    "memory=gwr memory/storage=frames": "memory/storage=frames: does not go with memory=gwr; use",
    "memory/storage=map": "memory/storage=map: does not go with memory=uniform; use memory/storage",
    "memory=gwr memory/sampler=rank": "memory/sampler=rank: does not go with memory=gwr; use memo",
    "memory.sampler.kind=rank": "memory.sampler.kind=rank: it needs alpha, beta_start",
    "agent=ddpg env=reacher agent.lr=1": "agent.lr=1: no such key in agent as chosen; it goes with",
    "agent.policy_delay=2": "agent.policy_delay=2: no such key in agent as chosen; it goes with",
    "agent=td3 env=reacher agent.network.kind=mlp": "agent.network as chosen; it goes with agent=a",
    "env.bits=9": "env.bits=9: no such key in env as chosen; it goes with env=bit_flip",
    "memory.k=2": "memory.k=2: no such key in memory as chosen; it goes with memory=her",
    "env.kwargs.bits=9": "env.kwargs.bits=9: the env's own arguments take a plus: +env.kwargs.bits",
    "env.version=v4": "env.version=v4: no such key in env as chosen; it goes with env=mujoco",
    "experiment=gwrr_paper env=cartpole": "; it goes with env=mujoco",
    # wrong types
    "seed=abc": "seed=abc: must be a whole number",
    "label=a\u200bb": "must be a line of letters, digits, signs and plain spaces, without ${",
    r"label=a\${x}": "label=a${x}: must be a line of letters, digits, signs and plain spaces",
    "trainer.compile=1": "trainer.compile=1: must be true, false or auto",
    "agent.network.hidden=[64,x]": "agent.network.hidden=[64, 'x']: x in it must be a whole number",
    "trainer.max_env_steps=1e5": "=100000.0: must be a whole number; write 100000",
    "agent.lr=fast": "agent.lr=fast: must be a number",
    "agent.lr=null": "agent.lr=null: must have a value",
    "agent.double=maybe": "agent.double=maybe: must be true or false",
    "agent.network.hidden=64": "must be a list, such as agent.network.hidden=[64]",
    "memory.sampler=rank": "memory.sampler=rank: memory.sampler is a group; write memory/sampler=r",
    "memory=null": "memory=null: give a name of the group, such as memory=cer",
    # syntax
    "memory.capacity": "memory.capacity: not an override; write key=value",
    "memory.capacity=[1": "memory.capacity=[1: a bracket is not closed; write 'memory.capac",
    "seed=1,": "seed=1,: a value is missing beside a comma",
    "agent.network.hidden=[64,,8]": "hidden=[64,,8]: a value is missing beside a comma",
    "seed=rnge(3)": "seed=rnge(3): no such function, rnge; did you mean range?",
    "conf": "conf: is a folder; write run=conf (evaluate.py) or resume=conf (train.py)",
    "seed=range(3": "seed=range(3: a bracket is not closed; write 'seed=range(3)'",
    "memory.capacity=1]": "memory.capacity=1]: cannot read the value; quote it twice:",
    "memory==per": "memory==per: there is one = too many; write memory=per",
    "memory=uniform,per": "memory=uniform,per: several values are a sweep; add -m, or wri",
    "seed=range(3)": "seed=range(3): several values are a sweep; add -m",
    "+memory=gwr": "+memory=gwr: memory is chosen already; write it without the +",
    "+seed=1": "+seed=1: seed is there already; write seed=1",
    # missing values
    "env=atari": "env.game is not set; give it, such as env.game=seaquest",
    "env=gym": "env.id is not set; give it, such as env.id=CartPole-v1",
    "env=mujoco": "env.task is not set; give it, such as env.task=Hopper",
    # a number in a name's place, and numbers that no machine has room for
    "threshold=.8": "threshold=.8: give a name of the group, such as threshold=paper",
    "experiment=1": "experiment=1: give a name of the group, such as experiment=",
    "memory/sampler=1": "memory/sampler=1: give a name of the group, such as memory/sampler=",
    "memory.capacity=1000000000000000000": "must be at least 1 and at most 1000000000",
    "agent.n_step=1000000000000": "agent.n_step=1000000000000: must be at least 1 and at most 1000",
    "agent.batch_size=1000000000": "must be at least 1 and at most 1048576",
    "agent.updates_per_step=1000000000": "must be at least 1 and at most 1048576",
    "agent.network.hidden=[1000000000]": "must be at least 1 and at most 65536",
    "memory=gwr memory.embedding.dims=100000000": "must be at least 1 and at most 65536",
    "env=bit_flip env.bits=1000000000000000000": "must be at least 1 and at most 1000",
    "env.terminal_reward=1e300": "env.terminal_reward=1e+300: must be at least -1000000000 and",
    "trainer.rounds=1000000000000000000": "auto or a whole number from 1 to 1000000",
    "agent=stream_q agent.num_envs=2": "env.num_envs=2",
    "plugins=inf": "plugins=[inf]: cannot be imported",
    "plugins=-1": "plugins=-1: must be a list of modules, such as plugins=[my_package",
    "plugins=[3]": "plugins=[3]: must be a list of modules",
    "plugins=[.mine]": "plugins=['.mine']: must be a list of modules",
    "plugins=[": "plugins=[: a bracket is not closed; write 'plugins=[]'",
    "callbacks=[nan]": "such as callbacks=none, or [] for none",
    "memory.budget=99999999999999999999": "memory.budget=99999999999999999999 is more than a mil",
    "log.every=99999999999999999999": "log.every=99999999999999999999: must be a whole number of 6",
    "agent=rainbow agent.atoms=1000000": "agent.atoms=1000000: must be at least 1 and at most 100",
    "env=pong env.stack=1000000": "env.stack=1000000: must be at least 1 and at most 64",
    # combinations
    "env=pong memory.capacity=10": "less than one batch, agent.batch_size=32; use memory.capacity=",
    "agent=dqn env=pong env.num_envs=3": "agent.train_every=4 with env.num_envs=3: 4 env steps a",
    "trainer.max_env_steps=500": "agent.learning_starts=1000: the run ends before, at trainer",
    "memory=her env=bit_flip env.terminal_reward=1": "env.terminal_reward=1.0: memory=her makes re",
    "agent=ddpg env=pong": "agent=ddpg: its actions are continuous, those of env=pong are discrete",
    "memory=gwr memory.contexts=-1": "memory.contexts=-1: must be auto or a whole number from 0",
    "memory=gwr memory.contexts=many": "memory.contexts=many: must be auto or a whole number from",
    "memory=gwr memory.contexts=2.5": "memory.contexts=2.5: must be auto or a whole number from 0",
    "memory=gwr memory.prototype=average": "memory.prototype=average: no such prototype; available",
    "memory=gwr memory.terminals=done": "memory.terminals=done: no such terminals; available: edge",
    "memory=gwr memory.episodes=join": "memory.episodes=join: no such episodes; did you mean join",
    "memory=gwr memory.eviction=fifo": "memory.eviction=fifo: no such eviction; available: ",
    "memory=gwr_plain memory/sampler=cer": "memory/sampler=cer: no such sampler",
    "memory=gwr_plain memory/sampler=combined": "use memory/sampler=prioritized or uniform or",
    "memory=gwr_released agent.n_step=3": "agent.n_step=3: with memory.terminals=node an edge is",
    "memory=gwr memory.episodes=joined agent.n_step=2": "of one step; use agent.n_step=1, or memo",
    "agent=td3 env=reacher agent.network.action_layer=4": "makes 3 layers; use agent.network.actio",
}

RANGES = {
    "threshold.activation=1.7": "threshold.activation=1.7: must be above 0 and at most 1",
    "threshold.habituation=0": "threshold.habituation=0.0: must be above 0 and at most 1",
    "agent.lr=-1e-3": "agent.lr=-0.001: must be above 0",
    "agent.lr=nan": "agent.lr=nan: must be above 0",
    "agent.gamma=1.1": "agent.gamma=1.1: must be at least 0 and at most 1",
    "agent.n_step=0": "agent.n_step=0: must be at least 1",
    "agent.network.hidden=[64,0]": "agent.network.hidden=[64, 0]: must be at least 1",
    "env.num_envs=0": "env.num_envs=0: must be at least 1",
    "trainer.max_episodes=0": "trainer.max_episodes=0: must be at least 1",
    "trainer.rounds=0": "trainer.rounds=0: must be auto or a whole number from 1",
    "trainer.rounds=often": "trainer.rounds=often: must be auto or a whole number from 1",
    "evaluation.episodes=0": "evaluation.episodes=0: must be at least 1",
    "evaluation.epsilon=2": "evaluation.epsilon=2.0: must be at least 0 and at most 1",
    "checkpoint.every=0": "checkpoint.every=0: must be at least 1",
    "memory.tau_b=3": "memory.tau_b=3.0: must be at least 0 and at most 1",
    "memory.metric.scale=large": "memory.metric.scale=large: must be auto or a number",
}


@pytest.mark.parametrize("given", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_would_work(given: str) -> None:
    with pytest.raises(UserError) as caught:
        check(compose("train", given.split()))
    assert MISTAKES[given] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_overrides_in_one_word_are_told_apart() -> None:
    with pytest.raises(UserError, match=r"^memory=per seed=1: one argument; give each key=value"):
        compose("train", ["memory=per seed=1"])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["-seed=1"], "rlmem: -seed=1: overrides have no dashes; write seed=1\n"),
        (["--seed=1"], "rlmem: --seed=1: overrides have no dashes; write seed=1\n"),
        (
            ["-m", "--env.game", "pong"],
            "rlmem: --env.game: overrides have no dashes; write env.game=.",
        ),
        (
            ["-m", "memory.name=uniform,per"],
            "rlmem: memory.name=uniform,per: would change the name alone; write memory=uniform\n",
        ),
        (
            ["hydra.run.dir=~/x"],
            "rlmem: hydra.run.dir=~/x: ~ means nothing here; write hydra.run.d",
        ),
    ],
)
def test_an_override_written_as_an_option_is_one_line(
    given: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_hydra(print, "train", given) == 2
    assert capsys.readouterr().err.startswith(line)


CONTINUOUS_RANGES = {
    "agent.actor_lr=0": "agent.actor_lr=0.0: must be above 0",
    "agent.critic_lr=-1": "agent.critic_lr=-1.0: must be above 0",
    "agent.critic_weight_decay=-1": "agent.critic_weight_decay=-1.0: must be at least 0",
    "agent.tau=0": "agent.tau=0.0: must be above 0 and at most 1",
    "agent.exploration_noise=-0.1": "agent.exploration_noise=-0.1: must be at least 0",
    "agent.policy_delay=0": "agent.policy_delay=0: must be at least 1",
    "agent.target_noise=-1": "agent.target_noise=-1.0: must be at least 0",
    "agent.target_noise_clip=0": "agent.target_noise_clip=0.0: must be above 0",
    "agent.network.action_layer=0": "agent.network.action_layer=0: must be at least 1",
}


@pytest.fixture(scope="module")
def config() -> DictConfig:
    return compose("train", ["memory=gwr"])


@pytest.fixture(scope="module")
def continuous() -> DictConfig:
    return compose("train", ["agent=td3", "env=reacher"])


def assert_out_of_range(config: DictConfig, given: str, line: str) -> None:
    cfg = OmegaConf.merge(config, OmegaConf.from_dotlist([given]))
    assert isinstance(cfg, DictConfig)
    with pytest.raises(UserError) as caught:
        check(cfg)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("given", RANGES)
def test_a_number_out_of_range_says_the_range(given: str, config: DictConfig) -> None:
    assert_out_of_range(config, given, RANGES[given])


@pytest.mark.parametrize("given", CONTINUOUS_RANGES)
def test_a_number_of_a_continuous_agent_has_its_range(given: str, continuous: DictConfig) -> None:
    assert_out_of_range(continuous, given, CONTINUOUS_RANGES[given])


def test_the_number_of_envs_that_fit_are_named() -> None:
    with pytest.raises(UserError, match=r"use env\.num_envs=1, 2 or 4$"):
        check(compose("train", ["agent=dqn", "env=pong", "env.num_envs=3"]))
    several = ["agent=dqn", "env=pong", "agent.updates_per_step=3", "env.num_envs=6"]
    check(compose("train", several))


@pytest.mark.parametrize(
    "given", ["memory=gwr memory.metric.scale=3", "memory=gwr memory.metric.scale=.5", "debug=true"]
)
def test_what_works_passes(given: str) -> None:
    check(compose("train", given.split()))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("mode=score", "run is not set; give the run directory, such as run=outputs/..."),
        ("mode=plot", "runs=[]: nothing to plot; give run directories, such as runs=[a,b]"),
        (
            "mode=plt",
            "mode=plt: no such mode; did you mean plot? Available: dashboard, map, "
            "plot, report, score, status",
        ),
        ("run=x episodes=0", "episodes=0: must be at least 1"),
        ("run=x out=y", "out=y: scores go into the run's own evaluation/; leave the key out"),
        ("run=x checkpoint=lst", "checkpoint=lst: no such checkpoint; did you mean last?"),
        ("rn=x", "rn=x: no such key; did you mean run?"),
    ],
)
def test_evaluate_has_its_own_checks(given: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_evaluate(compose("evaluate", given.split()))
    assert str(caught.value).startswith(line)
