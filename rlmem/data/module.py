"""The Lightning data module around the env-stepping stream."""

import lightning
import torch
from tensordict import TensorDict

from rlmem.data.stream import EnvStepStream


class EnvStepDataModule(lightning.LightningDataModule):
    """Feeds an agent from a memory that an env-stepping stream fills.

    Args:
        stream: see `EnvStepStream`. There are no DataLoader workers: each would copy the memory.
    """

    def __init__(self, stream: EnvStepStream) -> None:
        super().__init__()
        self.stream = stream

    def train_dataloader(self) -> EnvStepStream:
        """The stream itself."""
        return self.stream

    def transfer_batch_to_device(
        self, batch: TensorDict, device: torch.device, dataloader_idx: int
    ) -> TensorDict:
        """Move a batch; on the CPU it stays what it is."""
        return batch if device.type == "cpu" else batch.to(device, non_blocking=True)
