"""The processes of a run that trains data-parallel: who starts them, and how they come to an end.

On one machine the process that was started makes the others (`rlmem.runs.others`), from the
configuration that it has checked; torchrun and srun make all of them, and each is then told by its
environment which it is. A signal is for the first process alone, which tells the others after the
round (`rlmem.collect.shard`).
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy

from rlmem import distributed
from rlmem.collect.config import SeedOf, derive_seed
from rlmem.collect.stream import Stream
from rlmem.config.schema import TrainSettings
from rlmem.config.shares import processes_of, share_of
from rlmem.errors import UserError
from rlmem.runs.others import on_gpu


class GradientAveraging(DDPStrategy):
    """Lightning's DDP without torch's wrapper of the module: that waits for gradients in hooks of
    the weights, and an agent asks autograd for its gradients and averages them where it applies
    them."""

    def configure_ddp(self) -> None:
        """The module stays as it is."""


class SameWeights(lightning.Callback):
    """Ends the run if the processes do not hold the same weights, where a row is due."""

    def __init__(self, stream: Stream, every: int, agent: str) -> None:
        self.stream, self.every, self.agent = stream, every, agent

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **options: Any) -> None:
        """Compare at each multiple of `every` env steps."""
        if not self.stream.crossed(self.every):
            return
        if len(set(distributed.gather(checksum(pl_module)))) > 1:
            raise UserError(
                f"agent={self.agent}: its processes hold different weights after "
                f"{self.stream.env_steps:,} env steps; every gradient step of a data_parallel "
                "agent goes through apply_gradients, and what its layers count is the same in all"
            )


def watchers(cfg: TrainSettings, stream: Stream) -> list[lightning.Callback]:
    """Callbacks of a run of several processes."""
    if distributed.size == 1:
        return []
    return [SameWeights(stream, cfg.log.every, cfg.agent.name)]


def shared_tensors(agent: torch.nn.Module) -> list[torch.Tensor]:
    """Weights and buffers of an agent, which are the same in all processes."""
    state = agent.state_dict()
    return [tensor for name, tensor in state.items() if not name.endswith("_extra_state")]


def checksum(agent: torch.nn.Module) -> int:
    """Of the bits of its weights."""
    value = 0
    for tensor in shared_tensors(agent):
        value = zlib.crc32(tensor.detach().cpu().numpy().tobytes(), value)
    return value


def share(cfg: TrainSettings) -> TrainSettings:
    """What this process builds its parts with."""
    if distributed.size == 1:
        return cfg
    seed = derive_seed(cfg.seed, SeedOf.PROCESS, distributed.rank) if distributed.rank else cfg.seed
    return share_of(cfg, distributed.size, seed)


def trainer_options(cfg: TrainSettings) -> dict[str, Any]:
    """What the Trainer is told of the processes."""
    if distributed.size == 1:
        # Named: in a job of Slurm's Lightning would take over, write a pickle of its own at SIGUSR1
        # and requeue the job, and it refuses --ntasks above 1.
        return {"devices": 1, "plugins": [LightningEnvironment()]}
    environment = outside(cfg) or _Here()
    return {
        "devices": cfg.trainer.devices,
        "num_nodes": cfg.trainer.num_nodes,
        "strategy": GradientAveraging(cluster_environment=environment),
        "use_distributed_sampler": False,
    }


class _Here(LightningEnvironment):
    """Processes of this machine, made here."""

    @property
    def creates_processes_externally(self) -> bool:
        """Lightning has none to make."""
        return True

    def local_rank(self) -> int:
        """Number of this process."""
        return distributed.rank


def outside(cfg: TrainSettings) -> ClusterEnvironment | None:
    """The environment of processes that torchrun or srun made; None: they are to be made here.

    Raises:
        UserError: other processes were made than the configuration says.
    """
    size = processes_of(cfg.trainer)
    if TorchElasticEnvironment.detect():
        by, made = "torchrun", int(os.environ["WORLD_SIZE"])
    elif size > 1 and (made := int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))) > 1:
        by = "srun"
    elif cfg.trainer.num_nodes > 1:
        raise UserError(
            f"trainer.num_nodes={cfg.trainer.num_nodes}: a process cannot start others on another "
            "machine; start all of them by torchrun or srun (docs/scaling.md)"
        )
    else:
        return None
    if made != size:
        raise UserError(
            f"trainer.devices={cfg.trainer.devices} trainer.num_nodes={cfg.trainer.num_nodes}: "
            f"{by} has started {made} processes, these are {size}; the product must be {made}"
        )
    if by == "torchrun":
        return TorchElasticEnvironment()
    if "SLURM_NTASKS_PER_NODE" not in os.environ:
        raise UserError(
            f"srun: --ntasks={made} leaves open how many processes a machine has; use "
            f"--nodes={cfg.trainer.num_nodes} --ntasks-per-node={cfg.trainer.devices}"
        )
    return SLURMEnvironment(auto_requeue=False)


@contextmanager
def met(cfg: TrainSettings) -> Iterator[None]:
    """Meet the processes that torchrun or srun made, if so it is.

    Raises:
        UserError: several processes are asked for in a sweep.
    """
    size = processes_of(cfg.trainer)
    if size > 1 and HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        raise UserError(
            f"trainer.devices={cfg.trainer.devices} trainer.num_nodes={cfg.trainer.num_nodes}: a "
            "sweep's job is one process; leave them out, or leave out -m and start each run by "
            "itself (docs/scaling.md)"
        )
    environment = outside(cfg)
    if environment is None or size == 1:
        yield
        return
    os.environ.setdefault("MASTER_ADDR", environment.main_address)
    os.environ.setdefault("MASTER_PORT", str(environment.main_port))
    distributed.join(environment.global_rank(), size, gpu=on_gpu(cfg, environment.local_rank()))
    try:
        yield
    finally:
        distributed.leave()
