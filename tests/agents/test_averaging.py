"""Two processes with half a batch each learn what one does with the whole batch.

Bit for bit where the arithmetic is exact: the sums of a gradient are then the same in any order.
Elsewhere up to the rounding of those sums.
"""

from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from rlmem import distributed
from rlmem.agents.base import Learner
from rlmem.agents.ddpg import DDPG
from rlmem.agents.dqn import DQN
from rlmem.agents.rainbow import Rainbow
from rlmem.memories.base.batch import Batch
from rlmem.neighbours import Neighbours
from tests.agents import test_nec
from tests.agents.helpers import part
from tests.settings import settings

UPDATES, ROWS = 4, 8
DQN_KEYS = ("agent=dqn", "env=cartpole", "agent.network.hidden=[16]", "agent.lr=0.01")
Weights = dict[str, np.ndarray]


def batch_of(actions: Any, width: int = 4, updates: int = UPDATES) -> Batch:
    """Known minibatches [U, B], the same in all processes."""
    rng = np.random.default_rng(0)
    shape = (updates, ROWS)

    def whole(*size: int) -> torch.Tensor:
        return torch.from_numpy(rng.integers(-3, 4, (*shape, *size)).astype(np.float32))

    return {
        "observation": whole(width),
        "action": torch.from_numpy(actions(rng, shape)),
        "steps_to_next": torch.ones(*shape, 1, dtype=torch.int64),
        "weight": torch.from_numpy(rng.choice([0.25, 0.5, 1.0], (*shape, 1)).astype(np.float32)),
        "next_observation": whole(width),
        "reward": whole(1),
        "terminated": torch.from_numpy(rng.random((*shape, 1)) < 0.3),
    }


def discrete(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 2, shape)


def continuous(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-1, 1, (*shape, 2)).astype(np.float32)


def dqn(*overrides: str) -> tuple[Learner, Batch]:
    cfg = settings(*DQN_KEYS, *overrides).agent
    return DQN(cfg, (4,), 2), batch_of(discrete)


def exact() -> tuple[Learner, Batch]:
    """One update whose gradient is made of small multiples of powers of two."""
    agent, _ = dqn("agent.gamma=0.5", "agent.max_grad_norm=null")
    with torch.no_grad():
        for weight in agent.parameters():
            weight.copy_((weight * 8).round() / 8)
    return agent, batch_of(discrete, updates=1)


def medqn() -> tuple[Learner, Batch]:
    agent, batch = dqn()
    rng = np.random.default_rng(1)
    states = rng.normal(size=(UPDATES, 2, ROWS, 4)).astype(np.float32)
    held = {"consolidation": torch.from_numpy(states)}
    return agent, {**batch, **held, "consolidation_weight": torch.full((UPDATES,), 0.5)}


def rainbow() -> tuple[Learner, Batch]:
    """With noise and heads that begin anew, which are the first process's."""
    keys = ("agent=rainbow", "env=cartpole", "agent.network.hidden=[16]", "agent.reset_every=3")
    cfg = settings(*keys, "agent.n_step=1", "agent.noisy=true", "agent.lr=0.01").agent
    return Rainbow(cfg, (4,), 2, updates=8), batch_of(discrete)


def td3() -> tuple[Learner, Batch]:
    keys = ("agent=td3", "env=reacher", "agent.target_noise=0", "agent.network.hidden=[16,16]")
    box = np.ones(2, np.float32)
    agent = DDPG(settings(*keys).agent, 3, -box, box, torch.Generator().manual_seed(0))
    return agent, batch_of(continuous, width=3)


def nec() -> tuple[Learner, Batch]:
    """Both processes are given the same memory, which in a run each fills by itself."""
    agent, memory, _ = test_nec.parts("agent.lr=0.001")
    rng = np.random.default_rng(2)
    keys = rng.normal(size=(40, 8)).astype(np.float32)
    memory.values.write(keys, rng.integers(0, 2, 40), rng.normal(size=40).astype(np.float32))
    return agent, batch_of(discrete)


KINDS = {
    "exact": exact,
    "dqn": dqn,
    "double": lambda: dqn("agent.double=true", "agent.loss=huber", "agent.max_grad_norm=0.5"),
    "rmsprop": lambda: dqn("agent.optimizer=rmsprop"),
    **{"medqn": medqn, "rainbow": rainbow, "td3": td3, "nec": nec},
}


def rows(batch: Batch, number: int | None) -> Batch:
    """The half of each minibatch that is a process's; None: the whole."""
    if number is None:
        return batch
    half = slice(number * ROWS // 2, (number + 1) * ROWS // 2)
    split = {"consolidation": (slice(None), slice(None), half)}
    return {
        name: column if column.dim() == 1 else column[split.get(name, (slice(None), half))]
        for name, column in batch.items()
    }


def learned(kind: str, number: int | None) -> Weights:
    """Weights and running statistics after the updates."""
    torch.manual_seed(0)
    agent, batch = KINDS[kind]()
    torch.manual_seed(number or 0)
    agent.train()
    for update in range(len(batch["weight"])):
        agent.update(rows(part(batch, slice(update, update + 1)), number))
    state = agent.state_dict()
    return {n: t.numpy().copy() for n, t in state.items() if not n.endswith("_extra_state")}


def second(port: int, pipe: Connection, link: Neighbours | None) -> None:
    """The life of process 1."""
    torch.set_num_threads(1)
    distributed.join(1, 2, TCPStore("127.0.0.1", port, 2, False), neighbours=link)
    pipe.send({kind: learned(kind, 1) for kind in KINDS})
    distributed.leave()


@pytest.fixture(scope="module", params=["gloo", "neighbours"])
def processes(request: Any) -> tuple[dict[str, Weights], dict[str, Weights]]:
    """What process 0, this one, and process 1 have learned from their halves."""
    near = request.param == "neighbours"
    here, there = Neighbours.meet(2) if near else (None, None)
    spawn = torch.multiprocessing.get_context("spawn")
    store = TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)
    pipe, theirs = spawn.Pipe()
    process = spawn.Process(target=second, args=(store.port, theirs, there), daemon=True)
    process.start()
    try:
        distributed.join(0, 2, store, neighbours=here)
        ours = {kind: learned(kind, 0) for kind in KINDS}
        others = pipe.recv()
    finally:
        distributed.leave()
        process.join(30)
        process.kill()
    return ours, others


@pytest.mark.parametrize("kind", KINDS)
def test_all_processes_hold_the_same_bits(kind: str, processes: Any) -> None:
    here, there = processes
    assert here[kind].keys() == there[kind].keys()
    for name, value in here[kind].items():
        np.testing.assert_array_equal(value, there[kind][name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_two_halves_teach_what_the_whole_batch_does(kind: str, processes: Any) -> None:
    whole, half, here = learned(kind, None), learned(kind, 0), processes[0][kind]
    for name, value in whole.items():
        if kind == "exact":
            np.testing.assert_array_equal(here[name], value, err_msg=name)
        else:
            np.testing.assert_allclose(here[name], value, rtol=1e-4, atol=2e-6, err_msg=name)
    apart = max(float(abs(half[name] - value).max()) for name, value in whole.items())
    assert apart > 1e-3  # half the batch alone teaches something else
