"""Which signals end a run, and what they leave."""

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rlmem.callbacks.signals import StopOnSignal


def test_nothing_is_put_back_in_a_thread_where_nothing_was_set() -> None:
    failed: list[BaseException] = []

    def end_early() -> None:
        stream: Any = None
        try:
            StopOnSignal(stream).restore()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=end_early)
    thread.start()
    thread.join()
    assert failed == []


@pytest.fixture
def handlers() -> Iterator[None]:
    """Each signal as a shell leaves it (nohup ignores SIGHUP), and what was before put back."""
    watched = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2
    before = {number: signal.signal(number, signal.SIG_DFL) for number in watched}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_first_signal_asks_for_the_end_and_a_second_one_interrupts(
    handlers: None, number: signal.Signals
) -> None:
    stream: Any = SimpleNamespace(stop_requested=False)
    watched = StopOnSignal(stream)
    watched.arm(training=True)
    os.kill(os.getpid(), number)
    assert (stream.stop_requested, watched.received) == (True, number)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    watched.restore()


def test_another_signal_does_not_cut_off_what_the_first_one_saves(handlers: None) -> None:
    """Slurm's SIGTERM after its notice, or the other way round; the notice is what is passed on."""
    stream: Any = SimpleNamespace(stop_requested=False)
    heard: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    watched = StopOnSignal(stream)
    watched.arm(training=True)
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    assert watched.received == signal.SIGUSR2
    watched.restore()
    watched.pass_on()
    assert heard == [signal.SIGUSR2]


def test_a_hangup_that_is_ignored_stays_so(handlers: None) -> None:
    """As nohup has it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stream: Any = None
    watched = StopOnSignal(stream)
    watched.arm(training=True)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    watched.restore()
