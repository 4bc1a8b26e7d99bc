"""Signals where none can be watched."""

import threading
from typing import Any

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
