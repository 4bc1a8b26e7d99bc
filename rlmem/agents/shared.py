"""A network's weights and its Adam in memory that processes share, without a lock.

Each process has a copy of the network to play and to learn with. Its gradients go to the shared
Adam, whose statistics are shared too, and the copy is fetched anew (Mnih et al. 2016; Recht et al.
2011, Hogwild). Writes of a float32 do not tear; two processes at once may each lose some of the
other's, which is what the method accepts.

A gradient reaches the shared weights by being handed over, in `step`. Nothing here says that two
networks have the same `.grad`, as public codes do: since torch 2.0 `zero_grad` sets that to None,
after which the local gradients pile up, or the first one is stepped with for ever.
"""

from collections.abc import Iterable

import torch

from rlmem.networks.policies import Policy


class LocalCopy:
    """A process's own network, whose weights and gradients lie in one tensor each.

    Args:
        network: to be the copy.
    """

    def __init__(self, network: Policy) -> None:
        self.network = network
        self.weights = flatten_weights(network.parameters())
        self.buffers = flatten_weights(network.buffers())
        self.gradient = torch.zeros_like(self.weights)
        begin = 0
        for parameter in network.parameters():
            end = begin + parameter.numel()
            # Backward adds to a gradient that is there, in place: into `gradient`.
            parameter.grad = self.gradient[begin:end].view(parameter.shape)
            begin = end

    def find_gradient(self, loss: torch.Tensor, max_norm: float | None) -> float:
        """Put the gradient of a loss into `gradient`, scaled down to a norm; its norm before."""
        self.gradient.zero_()
        loss.backward()
        norm = float(torch.linalg.vector_norm(self.gradient))
        if max_norm is not None and norm > max_norm:
            self.gradient.mul_(max_norm / (norm + 1e-6))
        return norm


class SharedWeights:
    """Weights, running statistics and Adam's state, in shared memory once `share` was called.

    All of it is there before a process starts: torch's Adam makes its state, its step among it, at
    its first step, and each process would make its own.

    Args:
        like: a network's copy, whose weights these begin with.
        lr, eps: of Adam.
    """

    betas = 0.9, 0.999

    def __init__(self, like: LocalCopy, lr: float, eps: float) -> None:
        self.lr, self.eps = lr, eps
        self.weights, self.buffers = like.weights.clone(), like.buffers.clone()
        self.state = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(self.weights),
            "exp_avg_sq": torch.zeros_like(self.weights),
        }

    def as_optimizer(self) -> torch.optim.Adam:
        """Torch's Adam over the same tensors, for checkpoints and whoever looks at an agent's."""
        weights = torch.nn.Parameter(self.weights)
        adam = torch.optim.Adam([weights], self.lr, self.betas, self.eps, fused=True)
        adam.state[weights] = self.state
        return adam

    def share(self) -> None:
        """Move everything to shared memory; what is pickled for a process is then the same."""
        for tensor in (self.weights, self.buffers, *self.state.values()):
            if tensor.numel():
                tensor.share_memory_()

    def fetch(self, copy: LocalCopy) -> None:
        """Bring a copy up to date."""
        copy.weights.copy_(self.weights)
        self.fetch_statistics(copy)

    def fetch_statistics(self, copy: LocalCopy) -> None:
        """Bring a copy's running statistics up to date, alone."""
        copy.buffers.copy_(self.buffers)

    def take(self, copy: LocalCopy, adam: torch.optim.Adam) -> None:
        """Go on with the weights of a copy, and with the state of an Adam."""
        self.weights.copy_(copy.weights)
        self.buffers.copy_(copy.buffers)
        (state,) = adam.state.values()  # loading replaced its tensors
        for name, tensor in self.state.items():
            tensor.copy_(state[name])

    def step(self, copy: LocalCopy) -> None:
        """Step Adam by a copy's gradient, and take over the copy's running statistics."""
        state = self.state
        state["step"] += 1
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
            [self.weights],
            [copy.gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )
        self.buffers.copy_(copy.buffers)


def flatten_weights(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Make tensors, float32, views of one: float32 [numbers of all]; what they hold is kept."""
    tensors = list(tensors)
    flat = torch.empty(sum(tensor.numel() for tensor in tensors))
    begin = 0
    for tensor in tensors:
        view = flat[begin : begin + tensor.numel()].view(tensor.shape)
        view.copy_(tensor.detach())
        tensor.data = view
        begin += tensor.numel()
    return flat
