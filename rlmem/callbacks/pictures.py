"""Pictures of a memory while it learns: map/<picture>_<env steps>.png at intervals, and beside the
game in films."""

from pathlib import Path
from typing import Any

import lightning

from rlmem.callbacks.records import MetricsLogger
from rlmem.collect.stream import Stream
from rlmem.config.schema import TrainSettings
from rlmem.envs import EnvStepper
from rlmem.errors import need
from rlmem.integrations.wandb_dashboard import MAP
from rlmem.memories.base.pictures import Overlay, Picture, PictureContext


class MemoryPictures(lightning.Callback):
    """Draws the memory every `log.map_every` env steps and shows the loggers.

    It draws no random number and changes nothing, so that a run with pictures is the run without.

    Args:
        cfg: the whole configuration, whose memory has pictures.
        run_dir: of the run; pictures go into its `map/`.

    Raises:
        UserError: matplotlib is missing.
    """

    def __init__(
        self,
        cfg: TrainSettings,
        run_dir: Path,
        stream: Stream,
        loggers: list[MetricsLogger],
    ) -> None:
        assert cfg.log.map_every is not None
        need("matplotlib", f"log.map_every={cfg.log.map_every}", "plot")
        self.cfg, self.stream, self.loggers = cfg, stream, loggers
        self.folder, self.every = run_dir / "map", cfg.log.map_every
        stream.due_every(self.every)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Draw at each multiple of `every`."""
        if self.stream.crossed(self.every):
            self.draw(pl_module)

    def draw(self, agent: Any) -> None:
        """Draw now what the memory has to show."""
        from rlmem.drawing import DPI

        cfg, stream = self.cfg, self.stream
        context = PictureContext(cfg, agent, stream.env.spec, stream.env_steps, folder=self.folder)
        drawn = cfg.memory.part.cls.pictures(stream.memory, context)
        pictures = [shown for shown in drawn if isinstance(shown, Picture)]
        for number, picture in enumerate(pictures):
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{picture.name}_{stream.env_steps:09d}.png"
            path.unlink(missing_ok=True)  # it may be a link to a file elsewhere
            picture.figure.savefig(path, dpi=DPI)
            for logger in self.loggers:
                if show := getattr(logger, "image", None):
                    show(stream.env_steps, f"{MAP}/{picture.name}" if number else MAP, path)


def memory_pictures(
    cfg: TrainSettings,
    run_dir: Path,
    stream: Stream,
    loggers: list[MetricsLogger],
) -> list[MemoryPictures]:
    """The callback if it is asked for; a memory without pictures says so once."""
    if cfg.log.map_every is None:
        return []
    if not hasattr(cfg.memory.part.cls, "pictures"):
        name = cfg.memory.name
        print(f"log.map_every: memory={name} has no pictures, nothing is drawn", flush=True)
        return []
    return [MemoryPictures(cfg, run_dir, stream, loggers)]


def beside_game(
    cfg: TrainSettings, run_dir: Path, agent: Any, memory: Any, env: EnvStepper, env_steps: int
) -> Overlay | None:
    """What the memory shows beside the game in a film; None: nothing."""
    overlay = getattr(cfg.memory.part.cls, "overlay", None)
    if overlay is None:
        return None
    context = PictureContext(cfg, agent, env.spec, env_steps, folder=run_dir / "map")
    return overlay(memory, context)
