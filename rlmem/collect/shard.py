"""The stream of one of several processes that train together: it plays its own environments, fills
its own shard of the memory, and counts what all of them do.

All play the same number of steps, so each knows the env steps of the whole. After each round they
agree, in one small message, on what one of them alone cannot know: how many minibatches all can
draw, whether something is due or a stop is asked for, whether episodes ended. Those that did are
then told to all, so counters, lengths and the end of a run are the same everywhere.
"""

import time
from typing import Any

from rlmem import distributed
from rlmem.collect.collector import Collector
from rlmem.collect.episodes import EpisodeTracker
from rlmem.collect.stream import Held
from rlmem.machine import peak_rss_bytes
from rlmem.memories.base.serialize import State

EXTREMES = {"_max": max, "_min": min}  # of columns; of all others the mean


class ShardCollector(Collector):
    """See `Collector`; `episodes` and all counters are those of the whole."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._running = EpisodeTracker(self.env.spec.num_envs)
        self._steps_a_turn *= distributed.size
        self._stopping = self._step_over = False  # as all agreed on after the last round
        self._step_ms = 0
        self._held, self._cpu_others, self._rss_others = Held({}, 0, 0, 0), 0.0, 0
        self._cpu_started = time.process_time()

    def begin_step(self) -> None:
        """See `Stream.begin_step`."""
        super().begin_step()
        self._step_over, self._step_ms = False, 0

    @property
    def stopping(self) -> bool:
        """Whether any process asked for it before the last round ended."""
        return self._stopping

    @property
    def step_over(self) -> bool:
        """Whether any process has something due."""
        return self._step_over

    @property
    def step_seconds(self) -> float:
        """The longest of all processes."""
        return self._step_ms / 1000

    def _ready(self) -> int:
        """Agree on the round; minibatches that all processes can draw."""
        ended = self._running.drain()
        here = (
            len(ended),
            self.stop_requested,
            super().step_over,
            int(1000 * super().step_seconds),
            -super()._ready(),
        )
        most, stopping, over, self._step_ms, lacking = distributed.largest(here)
        self._stopping, self._step_over = bool(stopping), bool(over)
        self.episodes_ended = self._tell_episodes(ended) if most else 0
        return -lacking

    def _tell_episodes(self, ended: list[Any]) -> int:
        """Take in the episodes that ended in all processes, in one order; how many."""
        rows = [(e.env_steps, e.episode_return, e.length) for e in ended]
        told = [row for rows in distributed.gather(rows) for row in rows]
        for row in sorted(told, key=lambda row: row[0]):
            self.episodes.add(*row)
        return len(told)

    def gather(self) -> None:
        """See `Stream.gather`."""
        cpu, rss = time.process_time() - self._cpu_started, peak_rss_bytes()
        told = distributed.gather([*Held.of(self.memory), cpu, rss])
        components: dict[str, int] = {}
        for row in told:
            for name, size in row[0].items():
                components[name] = components.get(name, 0) + size
        sums = [sum(row[column] for row in told) for column in range(1, 6)]
        self._held = Held(components, *sums[:3])
        self._cpu_others, self._rss_others = sums[3] - cpu, sums[4] - rss

    @property
    def held(self) -> Held:
        """When the processes last gathered."""
        return self._held

    def combined(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Means over the processes, and of columns that end so the largest or smallest."""
        told = distributed.gather(columns)
        found: dict[str, Any] = {}
        for name in columns:
            values = [row[name] for row in told if row.get(name) is not None]
            of_all = EXTREMES.get(name[-4:])
            mean = sum(values) / len(values) if values else None
            found[name] = of_all(values) if of_all and values else mean
        return found

    @property
    def cpu_seconds(self) -> float:
        """Of the other processes."""
        return self._cpu_others

    @property
    def peak_rss_bytes(self) -> int:
        """Of the other processes; what they share counts in each."""
        return self._rss_others

    def load_state_dict(self, state_dict: State) -> None:
        """See `Collector.load_state_dict`."""
        super().load_state_dict(state_dict)
        self._running.drain()  # ended while the environments were brought back
