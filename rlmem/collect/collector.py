"""The stream of batches: step the environments, write the memory, draw minibatches.

One `next` is one round; a Trainer step has one or more of them (`rlmem.collect.module`).
Iterating has no effect before the first `next`.

Resuming exactly: no emulator of a vector env can be saved. Instead, every `reseed_every` env steps
the running episodes are truncated and the environments are seeded anew from (seed, env_steps), and
the actions since then are kept. A stream that is loaded seeds the environments as they were seeded
and replays those actions, so that a resumed run sees the frames that an uninterrupted one sees.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlmem.collect.config import SeedOf, StreamConfig, derive_seed
from rlmem.collect.finite import check_first
from rlmem.collect.stream import Stream
from rlmem.envs import EnvStepper, FrameStack
from rlmem.memories.base.batch import Batch
from rlmem.memories.base.blocks import Block
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import count_of, entry
from rlmem.memories.memory import ReplayMemory

Columns = Mapping[str, tuple[tuple[int, ...], Any]]  # name -> shape of a row, dtype
_COUNTERS = "env_steps", "seeded_at"
Policy = Callable[[np.ndarray, float, np.random.Generator], Any]


class Collector(Stream):
    """Iterable of batches of U minibatches, one a round; empty while the memory is not ready.

    Args:
        env: the vector environment.
        memory: takes the transitions, gives the batches.
        policy: (observation [E, ...], epsilon, rng) -> actions int64 [E] or float32 [E, A]; with
            `columns`, (actions, {name: rows [E, ...]}).
        epsilon: env steps -> probability of a random action.
        config: see `StreamConfig`.
        columns: what the policy gives of each transition beside its action.
        restart: told at which environments, bool [E], the next observation begins an episode.
    """

    def __init__(
        self,
        env: EnvStepper,
        memory: ReplayMemory,
        policy: Policy,
        epsilon: Callable[[int], float],
        config: StreamConfig,
        columns: Columns | None = None,
        restart: Callable[[np.ndarray], None] = lambda done: None,
    ) -> None:
        super().__init__(env, memory, config)
        self.policy, self.epsilon, self.restart = policy, epsilon, restart
        self.stack = FrameStack(env.spec)
        self._running = self.episodes  # takes in the steps that are played here
        self._steps_a_turn = env.spec.num_envs  # that a step of all envs counts as
        self._rng = np.random.default_rng(derive_seed(config.seed, SeedOf.ACTIONS))
        self._seeded_at = -1  # env_steps when the envs were seeded; -1: seed before the next step
        # Actions since then, the first `_played` rows [E, ...]; one array, as they become many.
        spec = env.spec
        held = np.uint8 if spec.num_actions <= 256 else np.int64
        shape = (1024, spec.num_envs, *spec.action_shape)
        self._actions = np.empty(shape, np.float32 if spec.continuous else held)
        self._played = 0
        self._frames = np.empty(0)
        self._block = self._make_block(columns or {})
        self._turns = [
            self._block.rows(slice(turn * spec.num_envs, (turn + 1) * spec.num_envs))
            for turn in range(config.vector_steps)
        ]

    @property
    def steps_a_round(self) -> int:
        """Env steps of one round."""
        return self.config.vector_steps * self._steps_a_turn

    def __len__(self) -> int:
        """Rounds left; with `max_episodes` there may be fewer."""
        left = 0 if self.over else self.config.max_env_steps - self.env_steps
        return -(-left // self.steps_a_round)

    def __next__(self) -> Batch:
        if self.over:
            raise StopIteration
        self._collect()
        return self._draw()

    def _make_block(self, columns: Columns) -> Block:
        """Arrays of a round's N = V x E transitions, which each round fills anew."""
        spec, turns = self.env.spec, self.config.vector_steps
        n = turns * spec.num_envs
        more = dict(columns)
        if spec.goal is not None:
            more["achieved_goal"] = (spec.goal.size,), np.float32
        return Block(
            observation=np.empty((n, *spec.frame_shape), spec.dtype),
            action=np.empty((n, *spec.action_shape), np.float32 if spec.continuous else np.int64),
            next_observation=np.empty((n, *spec.frame_shape), spec.dtype),
            reward=np.empty(n, np.float32),
            terminated=np.empty(n, np.bool_),
            truncated=np.empty(n, np.bool_),
            env_id=np.tile(np.arange(spec.num_envs), turns),
            columns={name: np.empty((n, *shape), dtype) for name, (shape, dtype) in more.items()},
        )

    def _draw(self) -> Batch:
        config, started = self.config, time.perf_counter()
        batches = self._ready()
        if self.env_steps < config.learning_starts or batches == 0:
            return {}
        self.memory.anneal(self.env_steps)
        batch = self.memory.draw(config.batch_size, batches)
        self.seconds["sample"] += time.perf_counter() - started
        return batch

    def _ready(self) -> int:
        """Minibatches that can be drawn now."""
        return self.memory.available(self.config.batch_size, self.config.updates)

    def _collect(self) -> None:
        """Step the envs `vector_steps` times and write the transitions as one block."""
        episodes, began, seconds = self.episodes.count, self.env_steps, self.seconds
        if self._seeded_at < 0:
            self._seed_envs()
            self.restart(np.ones(self.env.spec.num_envs, np.bool_))
        clock = time.perf_counter()
        for rows in self._turns:
            played = self.policy(self.stack.observation, self.epsilon(self.env_steps), self._rng)
            if isinstance(played, tuple):
                played, columns = played
                for name, values in columns.items():
                    rows.columns[name][...] = values
            acted = time.perf_counter()
            done = self._step(played, rows)
            self.restart(done)
            seconds["act"] += acted - clock
            clock = time.perf_counter()
            seconds["env"] += clock - acted
        self.episodes_ended = self.episodes.count - episodes
        every = self.config.reseed_every
        if self.env_steps // every > began // every:
            self._cut(self._turns[-1])
        self._shape_rewards()
        self.memory.extend(self._block)
        seconds["insert"] += time.perf_counter() - clock

    def _step(self, action: np.ndarray, rows: Block) -> np.ndarray:
        """Step the envs once; the transitions are written to `rows`. Where an episode ended, [E].

        A run that goes on plays by this again what it had played: nothing is told to the agent,
        which is as its checkpoint left it.
        """
        rows.observation[...] = self._frames
        rows.action[...] = action
        if self._played == len(self._actions):
            self._actions = np.concatenate((self._actions, np.empty_like(self._actions)))
        self._actions[self._played] = action  # before an environment that changes it in place
        self._played += 1
        # As it is held and replayed, in the memory's own dtype; an environment may change its copy.
        step = self.env.step(rows.action.copy())
        self._frames = step.observation
        rows.next_observation[...] = step.next_observation
        rows.reward[...] = step.reward
        rows.terminated[...] = step.terminated
        rows.truncated[...] = step.truncated
        if step.achieved_goal is not None:
            rows.columns["achieved_goal"][...] = step.achieved_goal
        done = step.terminated | step.truncated
        self.stack.push(step.observation, done)
        self.env_steps += self._steps_a_turn
        self._running.push(self.env_steps, step, done)
        return done

    def _shape_rewards(self) -> None:
        """Rewards as they are learned from; episodes count those of the environment."""
        block, config = self._block, self.config
        if config.reward_clip:
            np.clip(block.reward, -1.0, 1.0, out=block.reward)
        if config.terminal_reward is not None:
            block.reward[block.terminated] = config.terminal_reward

    def _seed_envs(self) -> None:
        self._seeded_at, self._played = self.env_steps, 0
        self._frames = self.env.reset(
            derive_seed(self.config.seed, SeedOf.EPISODES, self._seeded_at)
        )
        check_first(self._frames)
        self.stack.reset(self._frames)
        self._running.reset()

    def _cut(self, rows: Block) -> None:
        """End all running episodes by truncation; the envs start anew before the next step."""
        rows.truncated[...] |= ~rows.terminated
        self._seeded_at, self._played = -1, 0

    def state_dict(self) -> dict[str, Any]:
        """Counters, RNG and the actions that lead from the last seeding to here."""
        return {
            "env_steps": self.env_steps,
            "seeded_at": self._seeded_at,
            "actions": self._actions[: self._played],
            "rng": self._rng.bit_generator.state,
            **self.episodes.state_views(),
        }

    def load_state_dict(self, state_dict: State) -> None:
        """Go on where the saved stream stood, replaying the environments' last stretch.

        Raises:
            ValueError: the saved stream had another number of environments, or holds what none
                does; this one stays as it was.
        """
        actions = self._saved_actions(state_dict)
        counted = {name: count_of(state_dict, name, "stream", -1) for name in _COUNTERS}
        if not -1 <= counted["seeded_at"] <= counted["env_steps"]:
            raise ValueError(f"the saved stream's counters disagree: {counted}")
        self.episodes.check_state(state_dict)
        try:
            np.random.default_rng(0).bit_generator.state = entry(state_dict, "rng", "stream")
        except (TypeError, ValueError, LookupError, ArithmeticError):
            raise ValueError("the saved stream's rng is no state of a generator") from None
        seeded_at = counted["seeded_at"]
        if seeded_at >= 0:
            self.env_steps = seeded_at
            self._seed_envs()
            for action in actions:
                self._step(action, self._turns[0])
        self.env_steps = self._step_began = counted["env_steps"]
        self._rng.bit_generator.state = state_dict["rng"]
        self.episodes.take_over(state_dict)

    def _saved_actions(self, state: State) -> np.ndarray:
        """The actions of a saved stream, such as this one's environments take: [T, E, ...]."""
        spec, actions = self.env.spec, np.asarray(entry(state, "actions", "stream"))
        if actions.dtype.kind not in "iuf" or actions.shape[2:] != spec.action_shape:
            raise ValueError(
                f"the saved stream's actions are {actions.dtype} {actions.shape}, this one's "
                f"[n, {spec.num_envs}, {spec.action_shape}]"
            )
        if actions.ndim < 2 or actions.shape[1] != spec.num_envs:
            raise ValueError(
                f"the saved run had {actions.shape[1] if actions.ndim > 1 else 'no'} environments, "
                f"this one {spec.num_envs}"
            )
        if spec.continuous:
            fits = np.isfinite(actions)
        else:
            fits = (actions >= 0) & (actions < spec.num_actions)
        if not fits.all():
            raise ValueError("the saved stream's actions are none of this environment")
        return actions.astype(np.float32 if spec.continuous else np.int64)
