"""One run's parts, put together, and what happens to them."""

import contextlib
import os
from pathlib import Path
from typing import Any

import lightning

from rlmem import distributed
from rlmem.agents.compiled import compile_update
from rlmem.callbacks.checkpoint import Checkpointing, load_checkpoint
from rlmem.callbacks.checkpoint_files import (
    CheckpointFiles,
    find_checkpoint,
    other_lengths,
    remove_best,
    run_id,
    start_run_id,
)
from rlmem.callbacks.diagnostics import ReplayDiagnostics
from rlmem.callbacks.evaluation import Evaluation
from rlmem.callbacks.pictures import memory_pictures
from rlmem.callbacks.progress import Progress
from rlmem.callbacks.records import Recorder
from rlmem.callbacks.signals import StopOnSignal
from rlmem.collect.module import EnvStepDataModule
from rlmem.collect.stream import Stream
from rlmem.compiling import watched
from rlmem.config.schema import TrainSettings
from rlmem.config.sweep_place import place_of_this_job
from rlmem.envs import human_normalized_score
from rlmem.errors import UserError
from rlmem.runs import build, processes
from rlmem.runs.resume import command_to_go_on
from rlmem.runs.summary import (
    device_name,
    git_commit,
    versions,
    write_summary,
)

LINES_OF_JOB = 4  # of progress, of a sweep's job away from a terminal


class Run:
    """The parts of one run and what happens to them; of several processes each has a share of them,
    and the first writes, scores and shows.

    Args:
        cfg: the composed, checked configuration, of the whole.
        run_dir: where everything is written.

    Attributes:
        stopped: number of the signal that ended training, 0: none did.
    """

    stopped = 0

    def __init__(self, cfg: TrainSettings, run_dir: Path) -> None:
        self.cfg, self.run_dir = cfg, run_dir
        self.git_commit = git_commit()  # of the code that runs, whatever is edited meanwhile
        share, first = processes.share(cfg), distributed.rank == 0
        env = build.build_env(share)
        self.agent: Any = build.build_agent(share, env.spec)
        distributed.share_first(processes.shared_tensors(self.agent))
        memory = build.build_memory(share, env.spec, self.agent.columns())
        self.agent.join(memory)
        self.stream: Stream = build.build_stream(share, env, memory, self.agent)
        name = f"{cfg.env.name}-{cfg.memory.name}-seed{cfg.seed:03d}"  # in order, sorted by name
        self.loggers = build.build_loggers(cfg, run_dir, name) if first else []
        self.diagnostics = (
            ReplayDiagnostics(memory) if cfg.log.diagnostics and memory.draws else None
        )
        self.recorder = Recorder(
            run_dir, self.stream, cfg.log.every, self.loggers, self.diagnostics
        )
        self.checkpointing = Checkpointing(
            run_dir, self.stream, self.recorder, cfg.checkpoint.every
        )
        episodes, video = (cfg.evaluation.episodes, cfg.evaluation.video) if first else (1, False)
        scored = build.build_evaluation_env(cfg, episodes, render=video)
        self.evaluation = Evaluation(
            cfg, run_dir, scored, self.stream, self.recorder, self.checkpointing
        )
        self.data = EnvStepDataModule(
            self.stream, None if cfg.trainer.rounds == "auto" else cfg.trainer.rounds
        )
        self.progress = _progress(self.stream, self.recorder, cfg.log.progress and first)
        self.signals = StopOnSignal(self.stream)
        self.trainer = lightning.Trainer(
            accelerator="cpu" if self.agent.on_cpu else cfg.trainer.accelerator,
            **processes.trainer_options(cfg),
            precision=cfg.trainer.precision,  # pyright: ignore[reportArgumentType]
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            # Order matters: rows first, then scores, then the checkpoint of all.
            callbacks=[
                self.recorder,
                *([self.evaluation] if first else []),
                *(memory_pictures(cfg, run_dir, self.stream, self.loggers) if first else []),
                *processes.watchers(cfg, self.stream),
                self.checkpointing,
                self.progress,
                self.signals,
                *(chosen.build(cfg, run_dir) for chosen in cfg.callbacks.values()),
            ],
            # No folder: in one Lightning would look for checkpoints of its own in a Slurm job.
            default_root_dir=os.devnull,
        )

    def restore(self) -> None:
        """Go on from the run's checkpoint, or start its files."""
        folder, first = find_checkpoint(self.run_dir), distributed.rank == 0
        about = {"env_id": self.stream.env.spec.env_id, "log_every": self.cfg.log.every}
        if folder is None:
            if first:
                remove_best(self.run_dir)  # of a run that came to no checkpoint
                start_run_id(self.run_dir, **about)
            self.recorder.open()
            return
        if first and run_id(self.run_dir) is None:  # its file was lost, or emptied
            start_run_id(self.run_dir, **about, **CheckpointFiles(folder).of_run)
        self.agent.to(self.trainer.strategy.root_device)
        self.recorder.open(load_checkpoint(folder, self.agent, self.stream, self.diagnostics))

    def fit(self) -> dict[str, Any]:
        """Train to the end or to a signal; the summary."""
        trainer, agent = self.cfg.trainer, self.cfg.agent
        # Of the whole run: one that goes on is compiled where the uninterrupted one is.
        grad_steps = trainer.max_env_steps // agent.train_every
        self.agent.to(self.trainer.strategy.root_device)  # a compiled update keeps its tensors
        compile_update(self.agent, trainer.compile, grad_steps)
        with watched(self.progress.compiling):
            self.trainer.fit(self.agent, datamodule=self.data)
        self.progress.close()
        self.agent.to(self.trainer.strategy.root_device)
        self.signals.arm(training=True)  # Lightning has put back those of before
        self.checkpointing.save(self.agent)
        self.signals.arm(training=False)
        (self.stopped,) = distributed.largest([self.signals.received or 0])
        if self.stream.failure:
            again = command_to_go_on(self.run_dir)
            raise UserError(f"{self.stream.failure}; the run is saved, go on with: {again}")
        if self.stopped:
            return self.summary("interrupted")
        self.recorder.write_only_row(self.trainer, self.agent)
        if distributed.rank == 0 and self.recorder.evaluated_at < self.stream.env_steps:
            self.evaluation.evaluate(self.agent)
        # With the summary in it, this checkpoint alone says that the run is finished: whoever
        # comes back to a run that was killed after it finds it there (`finished_summary`).
        summary = self.summary("finished")
        keep = self.cfg.checkpoint.keep_memory_when_finished
        self.checkpointing.save(self.agent, with_memory=keep, summary=summary)
        return summary

    def summary(self, status: str, error: str | None = None) -> dict[str, Any]:
        """The content of summary.json."""
        stream, recorder, spec = self.stream, self.recorder, self.stream.env.spec
        held = stream.held
        returns = stream.episodes.recent_returns
        evaluation = recorder.last_evaluation
        seconds = recorder.seconds
        score = evaluation.mean if evaluation else None
        return {
            "status": status,
            "error": error,
            "agent": self.cfg.agent.name,
            "memory": self.cfg.memory.name,
            "env_id": spec.env_id,
            "seed": self.cfg.seed,
            "env_steps": stream.env_steps,
            "frames": stream.frames,
            "length_changed_at": other_lengths(self.run_dir),
            "grad_steps": self.agent.grad_steps,
            "episodes": stream.episodes.count,
            "train_return_mean": sum(returns) / len(returns) if returns else None,
            "eval_return_mean": score,
            "eval_return_std": evaluation.std if evaluation else None,
            "eval_unended": evaluation.unended if evaluation else None,
            "eval_success_rate": evaluation.success_rate if evaluation else None,
            "eval_episodes": len(evaluation.returns) if evaluation else 0,
            "human_normalized_score": (
                human_normalized_score(spec.env_id, score) if score is not None else None
            ),
            "memory_bytes": held.bytes,
            "memory_bytes_peak": max(recorder.bytes_peak, held.bytes),
            "memory_components": held.components,
            "memory_budget": stream.memory.budget and stream.memory.budget * distributed.size,
            "memory_entries": held.entries,
            "transitions_seen": held.seen,
            "bytes_per_transition": held.bytes / held.represented if held.represented else None,
            "peak_rss_bytes": recorder.peak_rss_bytes,
            "env_steps_per_second": stream.env_steps / seconds if seconds else None,
            "wall_seconds": seconds,
            "cpu_seconds": recorder.cpu_seconds,
            "device": device_name(self.trainer.strategy.root_device),
            "versions": versions(),
            "git_commit": self.git_commit,
        }

    def close(self, summary: dict[str, Any]) -> None:
        """Write what is left, the summary last.

        Raises:
            UserError: the run's folder was moved or removed.
        """
        self.progress.close()
        try:
            self.recorder.close()
            if distributed.rank == 0:
                write_summary(self.run_dir, summary)
        finally:
            for logger in self.loggers:
                if close := getattr(logger, "close", None):
                    close(summary["status"], summary)

    def let_go(self) -> None:
        """Let go of the environments, of processes that play, and of signals."""
        with contextlib.ExitStack() as opened:
            opened.callback(self.signals.restore)
            opened.callback(self.evaluation.env.close)
            opened.callback(self.stream.close)


def _progress(stream: Stream, recorder: Recorder, enabled: bool) -> Progress:
    """The progress of a run; a sweep's job is short in what it says, and names itself where others
    run at the same time."""
    place = place_of_this_job()
    if place is None:
        return Progress(stream, recorder, enabled)
    name = "" if place.alone else f"job {place.number}: "
    return Progress(
        stream, recorder, enabled, lines=LINES_OF_JOB, several_at_once=not place.alone, name=name
    )
