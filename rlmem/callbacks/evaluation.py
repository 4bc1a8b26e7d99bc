"""Evaluation episodes at intervals, on an environment of their own."""

from pathlib import Path
from typing import Any

import lightning

from rlmem.callbacks.checkpoint import Checkpointing
from rlmem.callbacks.pictures import beside_game
from rlmem.callbacks.records import Recorder
from rlmem.collect.config import SeedOf, derive_seed
from rlmem.collect.rollout import Stopped, Video, evaluate_policy, need_video
from rlmem.collect.stream import Stream
from rlmem.config.schema import TrainSettings
from rlmem.envs import EnvStepper


class Evaluation(lightning.Callback):
    """Scores the agent every `every` env steps.

    Args:
        cfg: the whole configuration.
        run_dir: into its `videos/` an mp4 of each evaluation's first episode goes.
        env: evaluation environment; must render if `evaluation.video`.
        stream: the run's stream, for its env steps.
    """

    def __init__(
        self,
        cfg: TrainSettings,
        run_dir: Path,
        env: EnvStepper,
        stream: Stream,
        recorder: Recorder,
        checkpointing: Checkpointing,
    ) -> None:
        self.cfg, self.seed, self.videos = cfg.evaluation, cfg.seed, run_dir / "videos"
        self.run, self.run_dir = cfg, run_dir
        self.env, self.stream = env, stream
        self.recorder, self.checkpointing = recorder, checkpointing
        if self.cfg.video:
            need_video("evaluation.video=true")
        if self.cfg.every is not None:
            stream.due_every(self.cfg.every, of_weights=True)

    def evaluate(self, agent: Any) -> None:
        """Score the agent now, write the episodes, keep the model if it is the best.

        Whole games may take minutes, and whoever ends the run may wait for seconds only: then it is
        left off, and made when the run goes on.
        """
        agent.check_weights()
        cfg, steps, video = self.cfg, self.stream.env_steps, None
        if cfg.video:
            memory = self.stream.memory
            beside = beside_game(self.run, self.run_dir, agent, memory, self.env, steps)
            video = Video(self.videos / f"eval_{steps:09d}.mp4", self.env.spec.video_fps, beside)
        try:
            result = evaluate_policy(
                self.env,
                agent.act,
                episodes=cfg.episodes,
                epsilon=cfg.epsilon,
                seed=derive_seed(self.seed, SeedOf.EVALUATION, steps),
                on_frame=video.append if video else None,
                restart=agent.restart,
                stop=lambda: self.stream.stop_requested,
            )
        except Stopped:
            return
        finally:
            if video:
                video.close()
        if result.remark:
            print(result.remark, flush=True)
        self.recorder.write_evaluation(result)
        self.checkpointing.save_if_best(agent)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make an evaluation that the run was killed before, if the run now goes on for longer."""
        self._evaluate_if_due(pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Score at each multiple of `every`, except at the very end (which is scored anyway)."""
        self._evaluate_if_due(pl_module)

    def _evaluate_if_due(self, agent: Any) -> None:
        every = self.cfg.every
        if every is None or self.stream.over:
            return
        if self.stream.env_steps // every > self.recorder.evaluated_at // every:
            self.evaluate(agent)
