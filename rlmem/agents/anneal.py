"""How the length of returns changes within a run."""

from dataclasses import dataclass

from rlmem.settings import Settings, beside, setting


@dataclass(kw_only=True)
class AnnealSettings(Settings):
    """Where the steps and the discount of returns go to, from `agent.n_step` and `agent.gamma`, in
    the gradient steps after the start and after each reset (Schwarzer et al. 2023, arXiv
    2305.19452, section 3)."""

    n_step: int | None = setting(at_least=2, at_most=1000)
    gamma: float | None = setting(at_least=0, at_most=0.9999)
    steps: int = setting(at_least=1, idle=beside(n_step=None, gamma=None))

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.n_step is not None or self.gamma is not None

    def at(self, steps: int, n_step: int, gamma: float) -> tuple[int, float]:
        """Steps and discount of returns, so many gradient steps after the last reset: n_step and
        1 - gamma go in equal factors.

        Args:
            n_step, gamma: at the start.
        """
        passed = min(1.0, steps / self.steps)
        if self.n_step is not None:
            n_step = round(n_step * (self.n_step / n_step) ** passed)
        if self.gamma is not None:
            gamma = 1 - (1 - gamma) * ((1 - self.gamma) / (1 - gamma)) ** passed
        return n_step, gamma
