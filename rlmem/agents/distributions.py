"""What a value-based agent learns of an action's return: its mean, or its distribution.

Parts of the group `agent/distribution`, made as `cls(settings of the agent)`. K are the numbers
that stand for a return; the plain mean has none, [B, A] and [B] in place of [B, A, K] and [B, K].
"""

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from rlmem.errors import UserError
from rlmem.registry import part

GROUP = "agent/distribution"


class Distribution(nn.Module):
    """Base of what is learned of returns.

    Attributes:
        atoms: K; None: one number, the value.
        reads: which of the agent's `atoms` and `support` it reads; None: nobody knows.
    """

    atoms: int | None = None
    reads: ClassVar[tuple[str, ...] | None] = None

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Q values [B, A] of a network's outputs [B, A, K]."""
        raise NotImplementedError

    def target(
        self, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        """What is learned from, [B, K].

        Args:
            following: outputs [B, K] of the next state's best action.
            reward, discount: [B, 1].
        """
        raise NotImplementedError

    def mean(self, target: torch.Tensor) -> torch.Tensor:
        """The means [B] of targets."""
        raise NotImplementedError

    def losses(self, taken: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss [B] of the outputs [B, K] of the actions that were taken."""
        raise NotImplementedError

    def priority(self, td_error: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
        """What a prioritized memory draws by, [B]."""
        return losses


@part(GROUP, "none")
class Mean(Distribution):
    """The value alone: the squared or the Huber loss of the TD error."""

    reads = ()

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self._loss = {"mse": functional.mse_loss, "huber": functional.huber_loss}[cfg.loss]

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs

    def target(
        self, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        return torch.addcmul(reward, discount, following.unsqueeze(-1)).squeeze(-1)

    def mean(self, target: torch.Tensor) -> torch.Tensor:
        return target

    def losses(self, taken: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self._loss(taken, target, reduction="none")

    def priority(self, td_error: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
        return td_error


@part(GROUP, "c51")
class Categorical(Distribution):
    """Probabilities of K returns at equal distances (Bellemare et al. 2017, arXiv 1707.06887).

    The target's returns fall between those; each one's probability is shared by its two neighbours.
    Priorities are the cross-entropies, as in Rainbow (Hessel et al. 2018, arXiv 1710.02298).
    """

    reads = ("atoms", "support")

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.atoms, (low, high) = cfg.atoms, cfg.support
        if cfg.atoms < 2:
            raise UserError(f"agent.atoms={cfg.atoms}: c51 needs 2 at least, such as 51")
        self.low, self.gap = low, (high - low) / (cfg.atoms - 1)
        self.support: torch.Tensor
        self.register_buffer("support", torch.linspace(low, high, cfg.atoms), persistent=False)

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        # A product of matrices would be one of bfloat16 under autocast.
        return (outputs.float().softmax(-1) * self.support).sum(-1)

    def target(
        self, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        chances = following.float().softmax(-1)
        returns = (reward + discount * self.support).sub_(self.low).div_(self.gap)
        place = returns.clamp_(0, len(self.support) - 1)
        below = place.floor()
        upper = place - below  # the share of the neighbour above; at the last there is none
        below = below.long()
        target = torch.zeros_like(chances)
        target.scatter_add_(-1, below, chances * (1 - upper))
        above = (below + 1).clamp_(max=len(self.support) - 1)
        return target.scatter_add_(-1, above, chances * upper)

    def mean(self, target: torch.Tensor) -> torch.Tensor:
        return (target * self.support).sum(-1)

    def losses(self, taken: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return -(target * taken.float().log_softmax(-1)).sum(-1)


@part(GROUP, "qr")
class Quantiles(Distribution):
    """K quantiles at equal probabilities (Dabney et al. 2018, arXiv 1710.10044): the quantile
    regression of the Huber loss of all pairs of quantiles and targets."""

    reads = ("atoms",)

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.atoms = cfg.atoms
        middle = (torch.arange(cfg.atoms) + 0.5) / cfg.atoms
        self.middle: torch.Tensor
        self.register_buffer("middle", middle.unsqueeze(-1), persistent=False)

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.float().mean(-1)

    def target(
        self, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        return torch.addcmul(reward, discount, following.float())

    def mean(self, target: torch.Tensor) -> torch.Tensor:
        return target.mean(-1)

    def losses(self, taken: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        ahead = target.unsqueeze(-2) - taken.float().unsqueeze(-1)  # [B, quantile, target]
        huber = functional.huber_loss(ahead, torch.zeros_like(ahead), reduction="none")
        weight = (self.middle - (ahead.detach() < 0).float()).abs()
        return (weight * huber).mean(-1).sum(-1)
