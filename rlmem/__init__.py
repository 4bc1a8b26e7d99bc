"""rlmem: the memory of deep RL agents, measured in bytes.

import rlmem

run = rlmem.train(["memory=per", "env=cartpole", "seed=1"])
run.summary["eval_return_mean"], run.metrics["memory_bytes"].max()
rlmem.evaluate(run.path, episodes=20)
"""

from typing import TYPE_CHECKING, Any

from rlmem.machine import place_for_compiled_loops
from rlmem.version import __version__

if TYPE_CHECKING:
    from rlmem.api import Run, evaluate, load_run, train

place_for_compiled_loops()

__all__ = ["Run", "__version__", "evaluate", "load_run", "train"]


def __getattr__(name: str) -> Any:
    """Import the functions when they are asked for: `import rlmem` alone takes no time."""
    if name in __all__:
        from rlmem import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What a notebook completes: the names that are imported late are among it."""
    return __all__
