"""The processes that a run makes on its own machine: their start, and why they ended.

The one that was started makes the others and ends them. One that dies ends the run in one line,
which names it and what killed it.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from rlmem import distributed, neighbours, registry
from rlmem.callbacks.checkpoint import read_manifest
from rlmem.callbacks.checkpoint_files import find_checkpoint
from rlmem.collect.worker import die_with
from rlmem.collect.workers import MASKED
from rlmem.config.quoting import shell_override
from rlmem.config.schema import TrainSettings
from rlmem.config.shares import processes_of
from rlmem.config.validate import read_settings
from rlmem.distributed import LostError
from rlmem.errors import UserError
from rlmem.neighbours import Neighbours

HOST = "127.0.0.1"
START = timedelta(minutes=10)  # for a process to import and arrive
NOTICE_SECONDS = 60.0  # for the first process to notice that another has failed
HERE = "here"  # what a process says first
END_SECONDS = 10.0  # for a process to say why it ended, or to end by itself


def on_gpu(cfg: TrainSettings, local_rank: int) -> bool:
    """Whether each process has a GPU, which becomes this one's.

    Raises:
        UserError: the machine has fewer.
    """
    if cfg.trainer.accelerator == "cpu" or not (found := torch.cuda.device_count()):
        return False
    if found < cfg.trainer.devices:
        raise UserError(
            f"trainer.devices={cfg.trainer.devices}: this machine has {found} GPUs; use "
            f"trainer.devices={found}, or trainer.accelerator=cpu"
        )
    torch.cuda.set_device(local_rank)
    return True


class Others:
    """The other processes of a run, as the one that made them sees them.

    Args:
        task: what each of them does, a function of the configuration and `arguments`.
        cfg: the checked configuration.
    """

    def __init__(
        self, task: Callable[..., Any], cfg: TrainSettings, arguments: tuple[Any, ...]
    ) -> None:
        self.size = processes_of(cfg.trainer)
        spawn = torch.multiprocessing.get_context("spawn")
        self.store = TCPStore(HOST, 0, self.size, True, START, wait_for_workers=False)
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        given = task, cfg.values, cfg.overrides, arguments
        links = Neighbours.meet(self.size) if neighbours.AVAILABLE else [None] * self.size
        self.link, *theirs_of = links
        # A signal is for this process alone. What is blocked here stays blocked there; the tracker
        # unblocks signals when it starts, so it starts before.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, MASKED)
        try:
            for number in range(1, self.size):
                pipe, theirs = spawn.Pipe()
                link = theirs_of[number - 1]
                arrival = number, self.store.port, os.getpid(), theirs, link
                process = spawn.Process(
                    target=_live, args=(*given, *arrival), name=f"rlmem-{number}", daemon=True
                )
                process.start()
                theirs.close()
                if link is not None:  # else its end is not seen, as this process holds it too
                    link.close()
                self.processes.append(process)
                self.pipes.append(pipe)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._ending = threading.Event()
        # Of two threads that ask for a process's end at once, one is told that it lives.
        self._asking = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """End this process if another has failed and this one does not notice: it may wait for a
        GPU, which waits for ever."""
        there = {process.sentinel: process for process in self.processes}
        while there:
            for sentinel in connection.wait([*there]):
                with self._asking:
                    there.pop(sentinel).join()  # pyright: ignore[reportArgumentType]
            if all(process.exitcode in (0, None) for process in self.processes):
                continue
            if not self._ending.wait(NOTICE_SECONDS):
                print(f"rlmem: {self.why()}", file=sys.stderr, flush=True)
                self.end(kill=True)
                os._exit(1)
            return

    def meet(self, *, gpu: bool) -> None:
        """Wait for all of them, and join.

        Raises:
            LostError: one of them could not start.
        """
        for number, (process, pipe) in enumerate(zip(self.processes, self.pipes, strict=True), 1):
            connection.wait([pipe, process.sentinel])
            try:
                said = pipe.recv()
            except (EOFError, OSError):  # it ended without a word
                raise LostError(self.why() or "") from None
            if said != HERE:
                raise LostError(self._ended(number, said))
            if not process.is_alive():
                raise LostError(self.why() or "")
        distributed.join(0, self.size, self.store, gpu=gpu, neighbours=self.link, why=self.why)

    def why(self) -> str | None:
        """What has ended one of them, waiting a little for it; None: nothing has."""
        # A process that dies closes its sentinel and its sockets a moment before the system says
        # that it is dead. So one whose sentinel is closed is waited for; it is not asked.
        ended = connection.wait([p.sentinel for p in self.processes], END_SECONDS)
        said = {}
        for number, (process, pipe) in enumerate(zip(self.processes, self.pipes, strict=True), 1):
            with self._asking:
                if process.sentinel not in ended and process.is_alive():
                    continue
                process.join()
            try:
                said[number] = pipe.recv() if pipe.poll() else None
            except (EOFError, OSError):
                said[number] = None
            if process.exitcode < 0:
                said[number] = f"killed by {signal.Signals(-process.exitcode).name}"
        # One that only lost the others has nothing to say: another one is the reason.
        for number, text in sorted(said.items(), key=lambda entry: entry[1] is None):
            return self._ended(number, text)
        return None

    def _ended(self, number: int, text: str | None) -> str:
        return f"process {number} of {self.size} ended: {text or 'it lost the others'}"

    def end(self, *, kill: bool) -> None:
        """Have all of them ended."""
        self._ending.set()
        for process in self.processes:
            if not kill:
                process.join(END_SECONDS)
            if process.is_alive():
                process.kill()
            process.join()
        for pipe in self.pipes:
            pipe.close()
        if self.link is not None:
            self.link.close()


def _live(
    task: Callable[..., Any],
    values: dict[str, Any],
    overrides: list[str],
    arguments: tuple[Any, ...],
    number: int,
    port: int,
    parent: int,
    pipe: Connection,
    link: Neighbours | None,
) -> None:
    """The whole life of a process that was made here."""
    die_with(parent)
    # By this method locks have no names, which a process that is killed would leave behind.
    torch.multiprocessing.set_start_method("fork", force=True)
    try:
        registry.load_plugins(values.get("plugins"))
        cfg = read_settings(values)
        cfg.overrides = overrides
        size = processes_of(cfg.trainer)
        gpu = on_gpu(cfg, number)
        pipe.send(HERE)
        store = TCPStore(HOST, port, size, False, START)
        distributed.join(number, size, store, gpu=gpu, neighbours=link)
        task(cfg, *arguments)
        distributed.leave()
    except LostError:
        os._exit(1)
    except SystemExit:
        return
    except BaseException as error:
        mistake = isinstance(error, UserError)
        if not mistake:
            traceback.print_exc()
        pipe.send(str(error) if mistake else f"{type(error).__name__}: {error}")
        os._exit(1)


@contextmanager
def made(
    task: Callable[..., Any], cfg: TrainSettings, run_dir: Path, resuming: bool
) -> Iterator[None]:
    """Have the other processes of the run at work, if they are to be made here.

    Raises:
        UserError: one of them ended before its time; none is left.
    """
    if distributed.size > 1 or processes_of(cfg.trainer) == 1:
        yield
        return
    others = Others(task, cfg, (run_dir, resuming))
    kill = True
    try:
        others.meet(gpu=on_gpu(cfg, 0))
        yield
        kill = False
    except LostError as error:
        raise UserError(f"{error}; {go_on(run_dir)}") from None
    finally:
        distributed.leave()
        others.end(kill=kill)


def go_on(run_dir: Path) -> str:
    """How to go on with a run of which a process is gone."""
    folder = find_checkpoint(run_dir)
    if folder is None:
        return "there is no checkpoint yet, start the run anew"
    steps = read_manifest(folder)["env_steps"]
    again = shell_override("resume", str(run_dir))
    return f"the last checkpoint is of {steps:,} env steps, go on with: {again}"
