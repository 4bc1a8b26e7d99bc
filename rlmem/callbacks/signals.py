"""Stopping in good order: a first signal ends the run at the next step, saved.

SIGINT and SIGTERM do; SIGUSR1, which many Slurm scripts ask for before the time is over
(--signal=USR1@120), where it would kill the process; SIGHUP, of a terminal that goes away, unless
it is ignored, as by nohup; and SIGUSR2 where somebody waits for it, as submitit does: Slurm sends
it shortly before a job's time is over, and submitit then puts the job into the queue again.
"""

import contextlib
import signal
from typing import Any

import lightning

from rlmem.collect.stream import Stream
from rlmem.orphan import parent_is_gone

WATCHED = (signal.SIGINT, signal.SIGTERM)


class StopOnSignal(lightning.Callback):
    """Ends the stream at the first signal; the same one again interrupts at once. Another one may
    be of the same end: a scheduler's notice and its SIGTERM, a terminal's SIGHUP and the shell's.

    The handlers are set when training starts, after Lightning has set its own (which would leave
    the process with exit code 0 in the middle of a run), and taken back when it ends.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.received: signal.Signals | None = None
        self._training = True
        self._seen: set[signal.Signals] = set()
        # Taken here: at the start of training they are Lightning's, of which it leaves nothing.
        self._before: dict[signal.Signals, Any] = {s: signal.getsignal(s) for s in WATCHED}
        if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            self._before[signal.SIGUSR1] = signal.SIG_DFL
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            self._before[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)
        if callable(waiting := signal.getsignal(signal.SIGUSR2)):
            self._before[signal.SIGUSR2] = waiting

    def _on_signal(self, number: int, frame: Any) -> None:
        new = signal.Signals(number)
        # A process whose parent ended is sent SIGTERM for it, whatever both were sent before.
        ends = self._training and (new not in self._seen or parent_is_gone())
        self._seen.add(new)
        # Whoever waits for SIGUSR2 is told of it, whatever else came.
        self.received = signal.SIGUSR2 if signal.SIGUSR2 in self._seen else new
        self.stream.stop_requested = True
        does = (
            "saving, then stopping" if ends else "stopping at once; what was saved before is kept"
        )
        with contextlib.suppress(OSError):  # the terminal may be what is gone
            print(f"\n{new.name}: {does}", flush=True)
        if not ends:
            raise KeyboardInterrupt

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The first signal ends the stream."""
        self.arm(training=True)

    def arm(self, *, training: bool) -> None:
        """Set the handlers (not in a thread, where Python refuses them).

        Args:
            training: whether a stream is there to end; without, the first signal interrupts.
        """
        self._training = training
        try:
            for number in self._before:
                signal.signal(number, self._on_signal)
        except ValueError:
            self._before = {}

    def restore(self) -> None:
        """Put back the handlers that were there; called once the run is saved."""
        with contextlib.suppress(ValueError):  # in a thread, where none was set
            for number, handler in self._before.items():
                signal.signal(number, handler)
        self._before = {}

    def pass_on(self) -> None:
        """Now that the run is saved, SIGUSR2 is for the one that waited for it."""
        if self.received == signal.SIGUSR2:
            signal.raise_signal(self.received)
