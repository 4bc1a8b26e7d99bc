"""Schedules over a run."""

from dataclasses import dataclass

from rlmem.errors import UserError
from rlmem.settings import Settings, alike, setting


@dataclass(kw_only=True)
class EpsilonSettings(Settings):
    """Exploration: `start`, from env step `decay_from` on a line to `end` at `decay_steps`.

    In place of it 1 until learning starts.
    """

    start: float = setting(at_least=0, at_most=1)
    end: float = setting(at_least=0, at_most=1)
    decay_from: int = setting(at_least=0, idle=alike("start", "end"))
    decay_steps: int = setting(at_least=1, idle=alike("start", "end"))

    def check(self) -> None:
        """Raise a UserError if the line ends before it begins."""
        if self.decay_from >= self.decay_steps:
            raise UserError(
                f"agent.epsilon.decay_from={self.decay_from}: use less than "
                f"agent.epsilon.decay_steps={self.decay_steps}"
            )

    def at(self, env_steps: int, learning_starts: int) -> float:
        """The rate after `env_steps`. It falls from 1 to the line where learning starts."""
        if env_steps < learning_starts:
            return 1.0
        passed = (env_steps - self.decay_from) / (self.decay_steps - self.decay_from)
        return self.start + min(1.0, max(0.0, passed)) * (self.end - self.start)


@dataclass(kw_only=True)
class RunEpsilonSettings(Settings):
    """Exploration, linear in env steps over a share of the run."""

    start: float = setting(at_least=0, at_most=1)
    end: float = setting(at_least=0, at_most=1)
    fraction: float = setting(above=0, at_most=1, idle=alike("start", "end"))

    def at(self, env_steps: int, max_env_steps: int) -> float:
        """The rate after `env_steps` of a run of so many."""
        end = self.fraction * max_env_steps  # 0 where the fraction is too small a number
        passed = env_steps / end if env_steps < end else 1.0
        return self.start + passed * (self.end - self.start)
