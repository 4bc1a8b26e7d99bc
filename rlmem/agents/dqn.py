"""DQN (Mnih et al. 2015) with double, dueling and n-step targets as switches.

Adam and the squared error instead of RMSProp and the Huber loss: that lifts plain DQN by more than
most replay variants do (Ceron & Castro 2021), so that each memory is compared on a sound baseline.
The agent knows neither storage nor environment: it takes a batch and gives TD errors.
"""

import copy
from typing import Any

import lightning
import numpy as np
import torch
from tensordict import TensorDict

from rlmem.agents.batch import read_batch
from rlmem.networks import make_network


class DQN(lightning.LightningModule):
    """Value-based agent over discrete actions.

    Args:
        cfg: the `agent` node of the configuration.
        observation_shape: of one observation as it is sampled.
        num_actions: number of discrete actions.
        input_scale: factor that brings observations into [0, 1].
    """

    def __init__(
        self,
        cfg: Any,
        observation_shape: tuple[int, ...],
        num_actions: int,
        input_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.cfg, self.num_actions = cfg, num_actions
        net = cfg.network
        self.online = make_network(
            net.kind,
            observation_shape,
            num_actions,
            list(net.hidden),
            cfg.dueling,
            input_scale,
        )
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        discounts = torch.tensor([cfg.gamma**k for k in range(cfg.n_step + 1)])
        self.discounts: torch.Tensor
        self.register_buffer("discounts", discounts, persistent=False)
        self.grad_steps = 0
        # In gradient steps, as the agent sees no environment.
        self.target_update_every = max(1, round(cfg.target_update_every / cfg.train_every))
        self.optimizer = torch.optim.Adam(
            self.online.parameters(), lr=cfg.lr, eps=cfg.adam_eps, fused=True
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over the online network."""
        return self.optimizer

    def epsilon(self, env_steps: int) -> float:
        """Exploration rate after `env_steps`: random before learning starts, then linear."""
        schedule = self.cfg.epsilon
        if env_steps < self.cfg.learning_starts:
            return 1.0
        fraction = min(1.0, env_steps / schedule.decay_steps)
        return schedule.start + fraction * (schedule.end - schedule.start)

    @torch.no_grad()
    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Epsilon-greedy actions.

        Args:
            observation: [E, *observation_shape].
            epsilon: probability of a random action.
            rng: generator of the exploration.

        Returns:
            int64 [E].
        """
        explore = rng.random(len(observation)) < epsilon
        actions = rng.integers(self.num_actions, size=len(observation))
        if not explore.all():
            q = self.online(torch.from_numpy(observation).to(self.device))
            greedy = q.argmax(-1).cpu().numpy()
            actions = np.where(explore, actions, greedy)
        return actions

    explore = act  # training and evaluation differ in epsilon only

    def training_step(self, batch: TensorDict, batch_idx: int) -> dict[str, Any]:
        """U gradient steps on a batch [U, B].

        Returns:
            `td_error` float32 [U, B] (target - Q, before each step) and `loss` [U]; both detached.
        """
        if batch.shape[0] == 0:
            return {"td_error": torch.empty(batch.shape), "loss": torch.empty(0)}
        columns = (batch["action"].unsqueeze(-1), *read_batch(batch, self.discounts))
        td_errors, losses = [], []
        for number, row in enumerate(zip(*columns, strict=True), start=self.grad_steps + 1):
            td_error, loss = self._update(*row)
            td_errors.append(td_error)
            losses.append(loss)
            if number % self.target_update_every == 0:
                self.target.load_state_dict(self.online.state_dict())
        self.grad_steps += len(losses)
        return {"td_error": torch.stack(td_errors), "loss": torch.stack(losses)}

    def _update(
        self,
        action: torch.Tensor,
        observation: torch.Tensor,
        next_observation: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
        weight: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One gradient step on a minibatch [B]; `discount` is 0 where the episode terminated."""
        with torch.no_grad():
            q_next = self.target(next_observation)
            if self.cfg.double:
                best = self.online(next_observation).argmax(-1, keepdim=True)
                value = q_next.gather(-1, best).squeeze(-1)
            else:
                value = q_next.amax(-1)
            target = torch.addcmul(reward, discount, value.to(reward.dtype))
        q = self.online(observation).gather(-1, action).squeeze(-1)
        td_error = target - q
        if self.cfg.loss == "huber":
            zero = torch.zeros_like(td_error)
            loss = torch.nn.functional.huber_loss(td_error, zero, reduction="none")
        else:
            loss = td_error.square()
        loss = (weight * loss).mean()
        # The raw optimizer: Lightning's wrapper costs a tenth of a small network's step.
        self.optimizer.zero_grad()
        loss.backward()
        if self.cfg.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.online.parameters(), self.cfg.max_grad_norm)
        self.optimizer.step()
        if torch.is_autocast_enabled(observation.device.type):
            # The Trainer's autocast region spans all U updates and caches the weights' bf16 copies.
            torch.clear_autocast_cache()
        return td_error.detach(), loss.detach()
