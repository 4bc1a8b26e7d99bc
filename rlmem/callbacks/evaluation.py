"""Evaluation episodes at intervals, on an environment of their own."""

from pathlib import Path
from typing import Any

import lightning

from rlmem.callbacks.checkpoint import Checkpointing
from rlmem.callbacks.records import Recorder
from rlmem.collect.collector import EnvStepStream, derive_seed
from rlmem.collect.rollout import EvaluationResult, Video, evaluate_policy
from rlmem.envs import EnvStepper


class Evaluation(lightning.Callback):
    """Scores the agent every `every` env steps.

    Args:
        env: evaluation environment; must render if `video`.
        stream: the run's stream, for its env steps.
        every: env steps between evaluations; None evaluates only when asked.
        episodes, epsilon: of one evaluation.
        seed: of the run.
        video_dir: where an mp4 of each evaluation's first episode goes; None makes none.
    """

    def __init__(
        self,
        env: EnvStepper,
        stream: EnvStepStream,
        recorder: Recorder,
        checkpointing: Checkpointing,
        *,
        every: int | None,
        episodes: int,
        epsilon: float,
        seed: int,
        video_dir: Path | None,
    ) -> None:
        self.env, self.stream = env, stream
        self.recorder, self.checkpointing = recorder, checkpointing
        self.every, self.episodes, self.epsilon, self.seed = every, episodes, epsilon, seed
        self.video_dir = video_dir
        if every is not None:
            stream.due_every(every)

    def evaluate(self, agent: Any) -> EvaluationResult:
        """Score the agent now, write the episodes, keep the model if it is the best."""
        steps = self.stream.env_steps
        video = None
        if self.video_dir is not None:
            video = Video(self.video_dir / f"eval_{steps:09d}.mp4", self.env.spec.video_fps)
        result = evaluate_policy(
            self.env,
            agent.act,
            episodes=self.episodes,
            epsilon=self.epsilon,
            seed=derive_seed(self.seed, 3, steps),
            on_frame=video.append if video else None,
        )
        if video:
            video.close()
        self.recorder.write_evaluation(result)
        self.checkpointing.save_if_best(agent)
        return result

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make up for an evaluation that a run was killed before, which now goes on for longer."""
        self._evaluate_if_due(pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Score at each multiple of `every`, except at the very end (which is scored anyway)."""
        self._evaluate_if_due(pl_module)

    def _evaluate_if_due(self, agent: Any) -> None:
        if self.every is None or self.stream.over:
            return
        if self.stream.env_steps // self.every > self.recorder.evaluated_at // self.every:
            self.evaluate(agent)
