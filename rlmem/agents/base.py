"""What every agent does in a Trainer step, and what it reads of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import lightning
import numpy as np
import torch
from torch import nn

from rlmem import distributed
from rlmem.collect.collector import Collector
from rlmem.collect.config import StreamConfig
from rlmem.collect.module import Rounds
from rlmem.collect.shard import ShardCollector
from rlmem.collect.stream import Stream
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.settings import Settings, setting

# What no loss reads: a truncated transition is bootstrapped from like any other.
_UNREAD = ("index", "truncated")


class Minibatches:
    """Takes batches [U, B, ...] apart into minibatches, columns [B, ...].

    A memory draws into the same tensors again and again, of which the views are kept: making them
    takes a fiftieth of a small network's step.
    """

    def __init__(self) -> None:
        self._views: dict[str, tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = {}

    def __call__(self, batch: Batch) -> list[Batch]:
        known, self._views = self._views, {}
        for name, column in batch.items():
            if name not in _UNREAD:
                kept = known.get(name)
                if kept is None or kept[0] is not column:
                    kept = column, column.unbind()
                self._views[name] = kept
        return [
            {name: views[update] for name, (_, views) in self._views.items()}
            for update in range(len(batch["weight"]))
        ]


@dataclass(kw_only=True)
class AgentSettings(Settings):
    """The keys that every agent has; their values stand in conf/agent.yaml."""

    extends = "/agent@_here_"

    name: str = setting()
    gamma: float = setting(at_least=0, at_most=1)
    n_step: int = setting(at_least=1, at_most=100_000)  # before what may be made of it
    batch_size: int = setting(at_least=1, at_most=2**20, divided=True)
    learning_starts: int = setting(at_least=0)
    train_every: int = setting(at_least=1)
    updates_per_step: int = setting(at_least=1, at_most=2**20)
    on_divergence: str = setting(choices=("stop", "continue"))


class Diverged(UserError):
    """Learning came to a loss, a weight, an action or a key that is no number."""

    def __init__(self, what: str, agent: "Learner") -> None:
        super().__init__(
            f"{what} after {agent.grad_steps:,} gradient steps: learning diverged; try "
            f"{agent.if_diverged}{' or env.reward_clip=true' if agent.rewards_are_raw else ''}"
        )


class Learner(lightning.LightningModule):
    """Learns from the batches of a Trainer step as they come; optimizes by itself.

    A subclass says how it learns (`update`) and plays (`act`, `explore`, `epsilon`). Its networks
    rest in evaluation mode and are in training mode while it learns.

    Attributes:
        has_action_values: whether a state's value is that of its best action, for pictures.
        takes_sequences: whether it learns from batches [U, B, T] of runs of transitions.
        takes_rollouts: whether it learns from all that was played since its last update, and reads
            minibatches of it itself (`rlmem.memories.rollout`).
        traces: whether it learns from each step once and keeps a trace of those before
            (`rlmem.memories.trace`).
        has_workers: whether worker processes play for it (`rlmem.memories.worker_rollouts`).
        asks: whether it asks its memory what to play (`rlmem.memories.values.base`).
        makes_keys: whether it then asks with keys of its own; False: with the observations.
        compiles: whether `_update`, a function of one minibatch, can be one compiled graph, where
            `optimizer` is a `FusedAdam`.
        recordable: whether its kernels can be recorded on a GPU and replayed as one launch, as
            `_update` never waits for any of them.
        on_cpu: whether it computes there, whatever the machine has.
        if_diverged: what to try where learning diverged, with this agent's keys.
        data_parallel: whether several processes can train it together: it learns from minibatches
            of a replay, and takes every gradient step by `apply_gradients`, which averages them.
        optimizer: None where nothing is learned by gradients.
        remark: what of its settings does nothing in this run; '' where all do something.
        unread: names of its keys, or of nodes of keys, that nothing reads in this run.
        unread_with: what makes them so.
        rewards_are_raw: whether the environment's could be clipped and are not.
        stops_diverged: whether a loss that is no finite number ends the run.
    """

    has_action_values: ClassVar[bool] = False
    takes_sequences: ClassVar[bool] = False
    takes_rollouts: ClassVar[bool] = False
    traces: ClassVar[bool] = False
    has_workers: ClassVar[bool] = False
    asks: ClassVar[bool] = False
    makes_keys: ClassVar[bool] = False
    compiles: ClassVar[bool] = False
    recordable: ClassVar[bool] = False
    on_cpu: ClassVar[bool] = False
    if_diverged: ClassVar[str] = "a smaller step size (agent.lr), agent.max_grad_norm=1"
    data_parallel: ClassVar[bool] = False
    online: Any
    optimizer: Any = None
    grad_steps: int = 0
    stops_diverged: bool = True
    rewards_are_raw: bool = True
    remark: str = ""
    unread: Sequence[str] = ()
    unread_with: str = ""
    _update: Any
    epsilon: Any  # (env steps) -> probability of a random action in training

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.minibatches = Minibatches()
        self._by_flag: list[dict[str, Any]] | None = None  # see `_set_mode`

    @classmethod
    def consolidates(cls, settings: Any) -> bool:
        """Whether it holds its action values to those of a target network, at states that a batch
        brings for that (`rlmem.memories.transforms.consolidation`)."""
        return False

    def on_train_start(self) -> None:
        """Networks rest in evaluation mode; Lightning starts with training mode."""
        self._by_flag = None
        self.eval()

    def training_step(self, rounds: Rounds, batch_idx: int) -> dict[str, torch.Tensor]:
        """Learn from each batch before the next is played for; what `update` gave of the last with
        its `loss` (nothing where no round drew one)."""
        newest: tuple[Batch, dict[str, torch.Tensor]] | None = None
        for batch in rounds:
            if batch:
                self._set_mode(training=True)
                outputs = self.update(batch)
                self._set_mode(training=False)
                try:
                    rounds.learned(batch, outputs)
                except ValueError as error:  # priorities are finite numbers
                    told = outputs.get("priority", outputs.get("td_error"))
                    if told is None or torch.isfinite(told).all():
                        raise
                    if self.stops_diverged:  # else they stay as they were
                        raise Diverged("the loss is nan", self) from error
                newest = batch, outputs
            self.round_ended(rounds.episodes_ended)
        if newest:  # observers hold these outputs too: what they say of them has the loss
            loss = newest[1]["loss"] = self.losses(*newest)
            # Once lost, weights stay so: the last loss of a Trainer step tells of all before.
            if self.stops_diverged and not torch.isfinite(loss).all():
                raise Diverged(f"the loss is {float(loss.reshape(-1)[-1])}", self)
        return newest[1] if newest else {}

    def check_weights(self) -> None:
        """Refuse to be saved or scored with weights that are no finite numbers: the last loss was
        made by those before its gradient step.

        Raises:
            Diverged: one of them is none.
        """
        if self.stops_diverged and not all(w.isfinite().all() for w in self.parameters()):
            raise Diverged("a weight is no finite number", self)

    def _set_mode(self, training: bool) -> None:
        """`train()` or `eval()`, at a fiftieth of their time where they only set a flag."""
        if self._by_flag is None:
            own = any(type(module).train is not nn.Module.train for module in self.modules())
            self._by_flag = [] if own else [vars(module) for module in self.modules()]
        if not self._by_flag:
            self.train(training)
        for values in self._by_flag:
            values["training"] = training

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Gradient steps on U minibatches [U, B].

        Returns:
            `loss` [U] (or see `losses`) and `td_error` [U, B], detached; where it gives `priority`
            [U, B], a prioritized memory takes that in place of the TD errors. With other memories
            `td_error` may be left out; its cells of metrics.csv stay empty then.
        """
        raise NotImplementedError

    def losses(self, batch: Batch, outputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The losses [U] of the minibatches before their gradient steps, for a row: asked for the
        last batch of a Trainer step only, so that others need not find theirs.

        Args:
            batch: that was learned from.
            outputs: what `update` gave of it.
        """
        return outputs["loss"]

    @property
    def value_name(self) -> str | None:
        """What `state_values` gives; None: there are none."""
        return "max Q(s, a) over a" if self.has_action_values else None

    def state_values(self, observation: torch.Tensor) -> torch.Tensor:
        """Values of states [n, *observation_shape], [n], for pictures."""
        return self.online(observation).amax(-1)

    def join(self, memory: Any) -> None:
        """Told of the run's memory before anything is played."""

    def make_stream(self, run: Any, env: Any, memory: Any, config: StreamConfig) -> Stream:
        """What plays for it and yields its batches.

        Args:
            run: the settings of the whole run.
            env: the environment that is trained on.
            memory: takes the transitions.
        """
        kind = Collector if distributed.size == 1 else ShardCollector
        explore, columns = self.explore, self.columns()
        return kind(env, memory, explore, self.epsilon, config, columns, self.explore_restart)

    def restart(self, done: np.ndarray) -> None:
        """Told by who plays with `act` that episodes of these environments, bool [E], begin anew:
        for agents that remember what they saw."""

    def explore_restart(self, done: np.ndarray) -> None:
        """The same of training, which plays with `explore`. It is told apart, as evaluation plays
        other environments in between; what is remembered of training's belongs in a buffer, which
        checkpoints keep."""

    def configure_optimizers(self) -> Any:
        """For Lightning: the `optimizer`."""
        return self.optimizer

    def round_ended(self, episodes_ended: int) -> None:
        """A round is played and learned from, in which so many episodes ended."""

    def columns(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Name -> (shape, dtype) of what `explore` gives of each transition beside its action."""
        return {}

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """What evaluation plays: actions [E, ...] for observations [E, ...], random ones with
        probability `epsilon`."""
        raise NotImplementedError

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> np.ndarray:
        """What training plays: actions [E, ...] for observations [E, ...]."""
        raise NotImplementedError


def check_discrete(settings: AgentSettings, run: Any, spec: Any) -> None:
    """What an agent with discrete actions needs of its environment.

    Raises:
        UserError: its actions are continuous.
    """
    if spec.continuous:
        raise UserError(
            f"agent={settings.name}: its actions are discrete, those of env={run.env.name} "
            f"({spec.env_id}) are {spec.action_shape[0]} continuous numbers; use agent=ddpg or "
            "agent=td3, env.action_levels=3 for a grid of actions, or an env such as env=cartpole"
        )


def check_fixed(settings: AgentSettings, usual: Mapping[str, Any], why: str) -> None:
    """Refuse values of keys that an agent does not read: they would change nothing.

    Args:
        usual: name -> the value that its file gives.
        why: it does not, for the message.

    Raises:
        UserError: another value is given.
    """
    for name, value in usual.items():
        if (given := getattr(settings, name)) != value:
            raise UserError(f"agent.{name}={given}: agent={settings.name} {why}; leave the key out")


def or_random(
    best: np.ndarray, epsilon: float, num_actions: int, rng: np.random.Generator
) -> np.ndarray:
    """Actions int64 [E]: the given ones, or with probability `epsilon` each a random one."""
    explores = rng.random(len(best)) < epsilon
    return np.where(explores, rng.integers(num_actions, size=len(best)), best)


def best_at_random(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The best actions int64 [E] by values [E, A]; of equal ones each is as likely."""
    best = values == values.max(1, keepdims=True)
    return np.where(best, rng.random(values.shape), -1.0).argmax(1)


def discount(row: Batch, discounts: torch.Tensor) -> torch.Tensor:
    """What the next state's value counts in a minibatch's targets, [B, 1]: 0 where the episode
    terminated, and there only.

    Args:
        discounts: [n_step + 1], gamma to the power of the steps that a transition spans.
    """
    return discounts.take(row["steps_to_next"]).masked_fill_(row["terminated"], 0)


def joined(found: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """What was found of each minibatch, columns [B] and numbers [], as [U, B] and [U]."""
    return {
        # Stacking one is a copy, and costs ten times what a view does.
        name: value.unsqueeze(0) if len(found) == 1 else torch.stack([f[name] for f in found])
        for name, value in found[0].items()
    }
