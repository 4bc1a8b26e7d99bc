"""Optimizers that are stepped from lists of gradients, without what `Optimizer.step` does around.

Torch's own step costs a tenth of a small network's update in hooks, profiling and the gathering of
its state. Here the lists are made once. The state is that of torch's optimizers, under the same
names, so checkpoints are alike and `step` still works.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import _engine_run_backward  # pyright: ignore[reportPrivateUsage]

from rlmem import distributed

Gradients = tuple[torch.Tensor, ...] | list[torch.Tensor]


class _Lists(NamedTuple):
    """Tensors of a group of parameters."""

    weights: list[torch.Tensor]
    first: list[torch.Tensor]  # moments
    second: list[torch.Tensor]
    steps: list[torch.Tensor]  # views of `count`, so that all are counted at once
    count: torch.Tensor
    strides: list[tuple[int, ...]]  # of the weights


class FusedAdam(torch.optim.Adam):
    """Torch's fused Adam, of which one group of parameters can be stepped by itself."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, eps: float = 1e-8) -> None:
        super().__init__(params, lr=lr, eps=eps, fused=True)
        self._lists: dict[int, _Lists] = {}

    def apply(self, group: int, gradients: Gradients) -> None:
        """Step the parameters of a group by their gradients, in order."""
        options = self.param_groups[group]
        if torch.compiler.is_compiling():
            _plain_step(self._lists[group], gradients, options)
            return
        lists = self._tensors(group)
        with torch.no_grad():
            # On a CPU the fused step goes through memory, whatever the strides are; and gradients
            # can lie otherwise than their weights: those of NNPACK's convolutions, or of a sum.
            if [gradient.stride() for gradient in gradients] != lists.strides:
                gradients = [
                    torch.empty_like(weight).copy_(gradient)
                    for weight, gradient in zip(lists.weights, gradients, strict=True)
                ]
            lists.count.add_(1)
            torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
                lists.weights,
                gradients,
                lists.first,
                lists.second,
                [],
                lists.steps,
                lr=options["lr"],
                beta1=options["betas"][0],
                beta2=options["betas"][1],
                weight_decay=options["weight_decay"],
                eps=options["eps"],
                amsgrad=False,
                maximize=False,
            )

    def prepare(self) -> None:
        """Make the state of all groups, so that a compiler finds it."""
        for group in range(len(self.param_groups)):
            self._tensors(group)

    def _tensors(self, group: int) -> "_Lists":
        """What is worked on in a step of a group."""
        lists = self._lists.get(group)
        if lists is not None:
            known = self.state.get(lists.weights[0])
            # Loading or moving a state replaces its tensors.
            if known is not None and known["exp_avg"] is lists.first[0]:
                return lists
        weights: list[torch.Tensor] = self.param_groups[group]["params"]
        count = torch.zeros(len(weights), dtype=torch.float32, device=weights[0].device)
        for weight, step in zip(weights, count, strict=True):
            state = self.state[weight]
            if state:
                step.fill_(float(state["step"]))
            else:
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            state["step"] = step
        first, second, steps = (
            [self.state[weight][name] for weight in weights]
            for name in ("exp_avg", "exp_avg_sq", "step")
        )
        strides = [weight.stride() for weight in weights]
        self._lists[group] = _Lists(weights, first, second, steps, count, strides)
        return self._lists[group]


@torch.no_grad()
def _plain_step(lists: _Lists, gradients: Gradients, options: dict[str, Any]) -> None:
    """Adam's equations for a compiler to fuse, which cannot look into torch's fused kernel."""
    (beta1, beta2), lr = options["betas"], options["lr"]
    lists.count.add_(1)
    count = lists.count[0]
    step_size = lr / (1 - beta1**count)
    root = (1 - beta2**count).sqrt()
    for weight, gradient, first, second in zip(
        lists.weights, gradients, lists.first, lists.second, strict=True
    ):
        if options["weight_decay"]:
            gradient = gradient + options["weight_decay"] * weight
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        weight.sub_(step_size * first / (second.sqrt() / root + options["eps"]))


def learning_weights(network: torch.nn.Module) -> list[torch.nn.Parameter]:
    """A network's parameters without those that are frozen."""
    return [weight for weight in network.parameters() if weight.requires_grad]


def _rmsprop(network: torch.nn.Module, lr: float, adam_eps: float) -> torch.optim.Optimizer:
    """Centred RMSprop with MinAtar's constants (Young & Tian 2019).

    That is not quite the RMSProp of Mnih et al. 2015: torch adds epsilon outside the root, where
    theirs is inside, and gradients are of a batch's mean error, where theirs are of its sum.
    """
    return torch.optim.RMSprop(
        learning_weights(network), lr=lr, alpha=0.95, eps=0.01, centered=True
    )


OPTIMIZERS = {
    "adam": lambda network, lr, adam_eps: FusedAdam(learning_weights(network), lr=lr, eps=adam_eps),
    "rmsprop": _rmsprop,
}


def own_epsilon(settings: Any) -> tuple[str, ...]:
    """`idle` of `adam_eps`: where an agent's optimizer has an epsilon of its own."""
    return () if settings.optimizer == "adam" else ("optimizer",)


def make_optimizer(
    kind: str, network: torch.nn.Module, lr: float, adam_eps: float
) -> torch.optim.Optimizer:
    """The optimizer of a network's parameters that learn, one of OPTIMIZERS."""
    return OPTIMIZERS[kind](network, lr, adam_eps)


def gradients_of(
    output: torch.Tensor, weights: list[torch.Tensor], slope: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The gradients of `weights`, of which `output` is made, from the gradient by `output`.

    That is `torch.autograd.grad` without its checks of shapes and types, which cost a small
    network a fifteenth of its round.
    """
    if torch.compiler.is_compiling():
        return torch.autograd.grad(output, weights, slope)
    return _engine_run_backward(
        (output,), (slope,), False, False, tuple(weights), True, accumulate_grad=False
    )


def apply_gradients(
    optimizer: torch.optim.Optimizer,
    group: int,
    gradients: Gradients,
    max_norm: float | None = None,
) -> None:
    """Step a group of an optimizer's parameters, by the mean over the run's processes.

    Args:
        gradients: of the group's parameters, in order; several processes average them in place.
        max_norm: gradients of a larger norm over all parameters are scaled down to it, in place.
    """
    if distributed.size > 1 or max_norm is not None:
        gradients = _apart(gradients)
    if distributed.size > 1:
        distributed.average(gradients)
    if max_norm is not None:
        norm = torch.nn.utils.get_total_norm(gradients)
        scale = (max_norm / (norm + 1e-6)).clamp_(max=1.0)
        torch._foreach_mul_(gradients, scale)  # pyright: ignore[reportPrivateImportUsage]
    if isinstance(optimizer, FusedAdam):
        optimizer.apply(group, gradients)
        return
    for weight, gradient in zip(optimizer.param_groups[group]["params"], gradients, strict=True):
        weight.grad = gradient
    optimizer.step()
    optimizer.zero_grad()


def _apart(gradients: Gradients) -> Gradients:
    """Gradients of which no two are in one place, as those of the terms of a sum can be: what is
    changed in place must be changed once."""
    if not torch.compiler.is_compiling():  # which fuses the copies with what follows
        places = {gradient.untyped_storage().data_ptr() for gradient in gradients}
        if len(places) == len(gradients):
            return gradients
    return [gradient.clone() for gradient in gradients]


def forget_casts(like: torch.Tensor) -> None:
    """After a step: the Trainer's autocast region spans all updates and would keep the bfloat16
    copies of the weights before it.

    Args:
        like: a tensor on the weights' device.
    """
    if not torch.compiler.is_compiling() and torch.is_autocast_enabled(like.device.type):
        torch.clear_autocast_cache()
