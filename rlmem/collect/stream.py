"""What every stream of a run is: counters, what is due when, and the batches of a Trainer step."""

import time
from typing import Any, NamedTuple

from rlmem.collect.config import StreamConfig
from rlmem.collect.episodes import Episode, EpisodeTracker
from rlmem.envs import EnvStepper
from rlmem.memories.base.batch import Batch
from rlmem.memories.base.serialize import State
from rlmem.memories.memory import ReplayMemory


class Held(NamedTuple):
    """What the run's memory holds, of all processes together."""

    components: dict[str, int]  # bytes
    entries: int
    seen: int  # transitions that it was given
    represented: int  # transitions that what is stored can stand for

    @property
    def bytes(self) -> int:
        """Of all components."""
        return sum(self.components.values())

    @classmethod
    def of(cls, memory: ReplayMemory) -> "Held":
        """By one memory."""
        return cls(
            memory.footprint(),
            memory.entries,
            memory.transitions_seen,
            memory.transitions_represented,
        )


class Stream:
    """Iterable of batches, one a round, until the run is over.

    A subclass plays (`__next__`), says how many rounds are left at most (`__len__`) and what a
    checkpoint keeps of it (`state_dict`, `load_state_dict`).

    Args:
        env: says what is played (`spec`); a subclass may play in others like it.
        memory: of the run.
        config: see `StreamConfig`.

    Attributes:
        stop_requested: the run is to end before its next Trainer step.
        failure: why it cannot go on, in one line; the run is saved first.
        episodes_ended: in the last round.
    """

    failure: str | None = None

    def __init__(self, env: EnvStepper, memory: ReplayMemory, config: StreamConfig) -> None:
        self.env, self.memory, self.config = env, memory, config
        self.episodes = EpisodeTracker(env.spec.num_envs)
        self.env_steps = 0
        self.stop_requested = False
        self.episodes_ended = 0
        self.seconds = {"act": 0.0, "env": 0.0, "insert": 0.0, "sample": 0.0}
        self._step_began = 0  # env_steps when the Trainer step began
        self._due: list[int] = []  # intervals at whose multiples something is due
        self._due_of_weights: list[int] = []  # those of them where it is of the agent's weights
        self._step_ends = 0  # env_steps at which a Trainer step ends at the latest
        self._step_clock = 0.0  # time when the Trainer step began

    @property
    def frames(self) -> int:
        """Emulator frames so far."""
        return self.env_steps * self.env.spec.frames_per_step

    def due_every(self, every: int, *, of_weights: bool = False) -> None:
        """A Trainer step is to end at each multiple of `every` env steps, or in the round that
        passes it, so that what is due there is done there.

        Args:
            of_weights: it is a score of the agent's weights, so they must be of that very moment.
        """
        self._due.append(every)
        if of_weights:
            self._due_of_weights.append(every)

    def begin_step(self) -> None:
        """A Trainer step begins."""
        self._step_began, self._step_clock = self.env_steps, time.monotonic()
        following = (every - self.env_steps % every for every in self._due)
        self._step_ends = self.env_steps + min(following, default=self.config.max_env_steps)

    @property
    def stopping(self) -> bool:
        """Whether the run ends before its next Trainer step."""
        return self.stop_requested

    @property
    def step_seconds(self) -> float:
        """Seconds since the Trainer step began."""
        return time.monotonic() - self._step_clock

    @property
    def step_over(self) -> bool:
        """Whether the Trainer step must end with this round: something is due, or the run is to
        stop."""
        return self.stop_requested or self.env_steps >= self._step_ends

    def crossed(self, every: int) -> bool:
        """Whether this Trainer step has reached or passed a multiple of `every` env steps."""
        return self.env_steps // every > self._step_began // every

    @property
    def over(self) -> bool:
        """Whether the run has come to its length: in env steps, or in episodes where they count."""
        episodes = self.config.max_episodes
        enough = episodes is not None and self.episodes.count >= episodes
        return enough or self.env_steps >= self.config.max_env_steps

    def __len__(self) -> int:
        """Rounds left, at most."""
        raise NotImplementedError

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Batch:
        raise NotImplementedError

    def finished_episodes(self) -> list[Episode]:
        """Episodes that ended since the last call."""
        return self.episodes.drain()

    def gather(self) -> None:
        """Count what all processes hold, for `held` and what stands below it; all ask at once."""

    @property
    def held(self) -> Held:
        """What the memory holds; of several processes, when they last gathered."""
        return Held.of(self.memory)

    def combined(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Columns of a row as they are of all processes together; all ask at once."""
        return columns

    def metrics(self) -> dict[str, float | None]:
        """Further columns of a row, of what was since the row before."""
        return {}

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of further processes."""
        return 0.0

    @property
    def peak_rss_bytes(self) -> int:
        """Most that further processes ever held, of each its own peak."""
        return 0

    def finish(self) -> None:
        """No further round is asked for: leave everything as a checkpoint can save it."""

    def close(self) -> None:
        """Let go of environments and processes."""
        self.env.close()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: State) -> None:
        """Go on where the saved stream stood."""
        raise NotImplementedError
