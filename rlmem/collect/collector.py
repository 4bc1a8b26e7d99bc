"""The stream of batches: step the environments, write the memory, draw minibatches.

One `next` is one round; a Trainer step has one or more of them (`rlmem.collect.module`).
Iterating has no effect before the first `next`.

Resuming exactly: no emulator of a vector env can be saved. Instead, every `reseed_every` env steps
the running episodes are truncated and the environments are seeded anew from (seed, env_steps), and
the actions since then are kept. A stream that is loaded seeds the environments as they were seeded
and replays those actions, so that a resumed run sees the frames that an uninterrupted one sees.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensordict import TensorDict

from rlmem.collect.episodes import Episode, EpisodeTracker
from rlmem.envs import EnvStepper, FrameStack
from rlmem.memories.base.serialize import State
from rlmem.memories.memory import ReplayMemory

Policy = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class StreamConfig:
    """What the stream needs to know; steps are env steps (agent decisions over all envs)."""

    seed: int
    max_env_steps: int
    learning_starts: int
    batch_size: int
    updates: int  # minibatches a round
    vector_steps: int  # steps of the vector env a round
    reseed_every: int
    reward_clip: bool
    max_episodes: int | None = None  # episodes after which the run is over as well
    terminal_reward: float | None = None  # of a termination, unclipped; None: the env's


def derive_seed(*parts: int) -> int:
    """An independent seed in [0, 2^31) for a tuple of integers."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0] >> 1)


class EnvStepStream:
    """Iterable of batches TensorDict [U, B]; [0, B] while the memory is not ready.

    Args:
        env: the vector environment.
        memory: takes the transitions, gives the batches.
        policy: (observation [E, ...], epsilon, rng) -> actions int64 [E] or float32 [E, A].
        epsilon: env steps -> probability of a random action.
        config: see `StreamConfig`.
    """

    def __init__(
        self,
        env: EnvStepper,
        memory: ReplayMemory,
        policy: Policy,
        epsilon: Callable[[int], float],
        config: StreamConfig,
    ) -> None:
        self.env, self.memory, self.config = env, memory, config
        self.policy, self.epsilon = policy, epsilon
        self.stack = FrameStack(env.spec)
        self.episodes = EpisodeTracker(env.spec.num_envs)
        self.env_steps = 0
        self.stop_requested = False  # the run ends before its next Trainer step
        self.episode_ended = False  # in the last round
        self.seconds = {"act": 0.0, "env": 0.0, "insert": 0.0, "sample": 0.0}
        self._step_began = 0  # env_steps when the Trainer step began
        self._rng = np.random.default_rng(derive_seed(config.seed, 1))
        self._seeded_at = -1  # env_steps when the envs were seeded; -1: seed before the next step
        self._actions: list[np.ndarray] = []  # since then, [E, ...] of this dtype each
        self._action_dtype = np.float32 if env.spec.continuous else np.int16
        self._frames = np.empty(0)

    @property
    def frames(self) -> int:
        """Emulator frames so far."""
        return self.env_steps * self.env.spec.frames_per_step

    def begin_step(self) -> None:
        """A Trainer step begins."""
        self._step_began = self.env_steps

    def crossed(self, every: int) -> bool:
        """Whether this Trainer step has reached or passed a multiple of `every` env steps."""
        return self.env_steps // every > self._step_began // every

    @property
    def steps_a_round(self) -> int:
        """Env steps of one round."""
        return self.config.vector_steps * self.env.spec.num_envs

    @property
    def over(self) -> bool:
        """Whether the run has come to its length: in env steps, or in episodes where they count."""
        episodes = self.config.max_episodes
        enough = episodes is not None and self.episodes.count >= episodes
        return enough or self.env_steps >= self.config.max_env_steps

    def __len__(self) -> int:
        """Rounds left; with `max_episodes` there may be fewer."""
        left = 0 if self.over else self.config.max_env_steps - self.env_steps
        return -(-left // self.steps_a_round)

    def __iter__(self) -> "EnvStepStream":
        return self

    def __next__(self) -> TensorDict:
        if self.over:
            raise StopIteration
        self._collect()
        return self._draw()

    def _draw(self) -> TensorDict:
        config, started = self.config, time.perf_counter()
        batches = self.memory.available(config.batch_size, config.updates)
        if self.env_steps < config.learning_starts or batches == 0:
            return TensorDict({}, batch_size=[0, config.batch_size])
        self.memory.anneal(self.env_steps)
        batch = self.memory.sample(config.batch_size, batches)
        self.seconds["sample"] += time.perf_counter() - started
        return batch

    def _collect(self) -> None:
        """Step the envs `vector_steps` times and write the transitions as one block."""
        rows = []
        episodes, began = self.episodes.count, self.env_steps
        if self._seeded_at < 0:
            self._seed_envs()
        for _ in range(self.config.vector_steps):
            started = time.perf_counter()
            action = self.policy(self.stack.observation, self.epsilon(self.env_steps), self._rng)
            acted = time.perf_counter()
            rows.append(self._step(action))
            self.seconds["act"] += acted - started
            self.seconds["env"] += time.perf_counter() - acted
        self.episode_ended = self.episodes.count > episodes
        every = self.config.reseed_every
        if self.env_steps // every > began // every:
            self._cut(rows[-1])
        started = time.perf_counter()
        self.memory.extend(self._block(rows))
        self.seconds["insert"] += time.perf_counter() - started

    def _step(self, action: np.ndarray) -> dict[str, np.ndarray]:
        step = self.env.step(action)
        before = self._frames
        self._frames = step.observation
        done = step.terminated | step.truncated
        self.stack.push(step.observation, done)
        self.env_steps += len(action)
        self.episodes.push(self.env_steps, step.reward, done)
        self._actions.append(action.astype(self._action_dtype))
        goal = {} if step.achieved_goal is None else {"achieved_goal": step.achieved_goal}
        return {
            **goal,
            "observation": before,
            "action": action,
            "next_observation": step.next_observation,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
        }

    def _block(self, rows: list[dict[str, np.ndarray]]) -> dict[str, Any]:
        """Rows of E transitions as one time-major block."""
        flat = {
            name: rows[0][name] if len(rows) == 1 else np.concatenate([r[name] for r in rows])
            for name in rows[0]
        }
        reward = flat["reward"]
        if self.config.reward_clip:
            reward = np.clip(reward, -1.0, 1.0)
        if self.config.terminal_reward is not None:
            reward = np.where(flat["terminated"], self.config.terminal_reward, reward)
        num_envs = self.env.spec.num_envs
        goal = {name: flat[name] for name in ("achieved_goal",) if name in flat}
        return {
            "observation": flat["observation"],
            "action": flat["action"],
            "env_id": np.tile(np.arange(num_envs), len(rows)),
            "next": {
                "observation": flat["next_observation"],
                "reward": reward[:, None],
                "terminated": flat["terminated"][:, None],
                "truncated": flat["truncated"][:, None],
                **goal,
            },
        }

    def _seed_envs(self) -> None:
        self._seeded_at = self.env_steps
        self._actions = []
        self._frames = self.env.reset(derive_seed(self.config.seed, 2, self._seeded_at))
        self.stack.reset(self._frames)
        self.episodes.reset()

    def _cut(self, row: dict[str, np.ndarray]) -> None:
        """End all running episodes by truncation; the envs start anew before the next step."""
        row["truncated"] = row["truncated"] | ~row["terminated"]
        self._seeded_at = -1
        self._actions = []

    def finished_episodes(self) -> list[Episode]:
        """Episodes that ended since the last call."""
        return self.episodes.drain()

    def state_dict(self) -> dict[str, Any]:
        """Counters, RNG and the actions that lead from the last seeding to here."""
        spec = self.env.spec
        no_actions = np.empty((0, spec.num_envs, *spec.action_shape), self._action_dtype)
        return {
            "env_steps": self.env_steps,
            "seeded_at": self._seeded_at,
            "actions": np.stack(self._actions) if self._actions else no_actions,
            "rng": self._rng.bit_generator.state,
            "episodes": self.episodes.count,
            "recent_returns": list(self.episodes.recent_returns),
            "recent_lengths": list(self.episodes.recent_lengths),
        }

    def load_state_dict(self, state_dict: State) -> None:
        """Go on where the saved stream stood, replaying the environments' last stretch.

        Raises:
            ValueError: the saved stream had another number of environments.
        """
        dtype = np.float32 if self.env.spec.continuous else np.int64
        actions = np.asarray(state_dict["actions"]).astype(dtype)
        if actions.shape[1] != self.env.spec.num_envs:
            raise ValueError(
                f"the saved run had {actions.shape[1]} environments, this one "
                f"{self.env.spec.num_envs}"
            )
        seeded_at = int(state_dict["seeded_at"])
        if seeded_at >= 0:
            self.env_steps = seeded_at
            self._seed_envs()
            for action in actions:
                self._step(action)
        self.env_steps = self._step_began = int(state_dict["env_steps"])
        self._rng.bit_generator.state = state_dict["rng"]
        self.episodes.drain()
        self.episodes.count = int(state_dict["episodes"])
        self.episodes.recent_returns = deque(state_dict["recent_returns"], maxlen=100)
        self.episodes.recent_lengths = deque(state_dict["recent_lengths"], maxlen=100)
