"""Keys that have no effect beside the values of others."""

from dataclasses import dataclass
from typing import Any

import pytest

from rlmem.config import check, compose
from rlmem.setting_keys import idle_keys
from rlmem.settings import Settings, alike, beside, setting


@dataclass(kw_only=True)
class Brake(Settings):
    on: bool = setting(True)
    force: float = setting(1.0, idle=beside(on=False))
    first: float = setting(0.0)
    last: float | None = setting(1.0)
    seconds: int = setting(5, idle=alike("first", "last"))


@dataclass(kw_only=True)
class Bike(Settings):
    brakes: dict[str, Any] = setting({})
    rear: Brake = setting()


def test_they_are_found_at_any_depth() -> None:
    bike = Bike(brakes={"front": Brake(on=False), "wall": 1}, rear=Brake(first=1.0))
    assert idle_keys(bike, "bike") == {
        "bike.brakes.front.force": "bike.brakes.front.on=false",
        "bike.rear.seconds": "bike.rear.first=1.0 and bike.rear.last=1.0",
    }


def idle(*given: str) -> dict[str, str]:
    return idle_keys(check(compose("train", ["env=cartpole", *given])))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("agent=rainbow agent.distribution=none", "agent.atoms"),
        ("agent=rainbow agent.distribution=qr", "agent.support"),
        ("agent=rainbow agent.target_network=false", "agent.double"),
        ("agent=dqn agent.optimizer=rmsprop", "agent.adam_eps"),
        ("agent=td3 env=reacher agent.target_noise=0", "agent.target_noise_clip"),
        (
            "agent=a3c env=pong agent.network.kind=nature agent.network.kind=lstm42",
            "agent.network.hidden",
        ),
        ("agent=pqn agent.epsilon.start=0.05", "agent.epsilon.fraction"),
        ("memory=gwr memory.embedding.kind=identity", "memory.embedding.dims"),
        ("memory=gwr memory.links=false", "memory.max_age"),
        ("memory=gwr memory.prototype=exemplar", "memory.eps_n"),
        ("memory=uniform memory.budget=1MiB", "memory.capacity"),
        ("memory=gwr memory.budget=1MiB", "memory.capacity"),
        ("agent=nec memory=dnd memory.keys=random_projection", "memory.capacity"),
        ("memory=per memory.sampler.alpha=0", "memory.sampler.beta_steps"),
        ("env=mini_maze env.maze=7 env.maze=released", "env.pits"),
        ("memory=gwr memory.contexts=0", "memory.context_beta"),
        ("memory=gwr memory.metric.scale=1", "memory.metric.scale_samples"),
        ("memory=medqn_u memory.consolidation.weight_start=4", "memory.consolidation.weight_steps"),
        ("agent=nec memory=gcmr memory.reconstruct.key_nodes=none", "memory.reconstruct.most"),
    ],
)
def test_keys_of_parts(given: str, key: str) -> None:
    *before, last = given.split()
    assert key not in idle(*before)
    assert key in idle(*before, last)
