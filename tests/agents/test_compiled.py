"""The compiled update: when it is made, and that it learns as the plain one."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rlmem import distributed
from rlmem.agents import compiled
from rlmem.agents.compiled import REPAYS_FROM, CompiledUpdate, compile_update
from rlmem.agents.rainbow import Rainbow
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from tests.agents import test_ddpg
from tests.agents.test_consolidation import consolidating
from tests.agents.test_dqn import make_agent, make_batch
from tests.settings import settings


@pytest.mark.parametrize(("asked", "grad_steps"), [(False, 10**9), ("auto", REPAYS_FROM - 1)])
def test_an_update_is_left_as_it_is_where_compiling_does_not_pay(
    asked: bool | str, grad_steps: int
) -> None:
    agent = make_agent()
    compile_update(agent, asked, grad_steps)
    assert not isinstance(agent._update, CompiledUpdate)


def test_auto_passes_over_what_cannot_be_compiled_and_true_names_it() -> None:
    agent = make_agent("agent.optimizer=rmsprop")
    compile_update(agent, "auto", 10**9)
    assert not isinstance(agent._update, CompiledUpdate)
    with pytest.raises(UserError, match=r"optimizer=rmsprop: trainer\.compile=true works with"):
        make_agent("agent.optimizer=rmsprop", "trainer.compile=true")


def test_auto_passes_over_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients are averaged between backward and the step, outside of any graph."""
    monkeypatch.setattr(distributed, "size", 2)
    agent = make_agent()
    compile_update(agent, "auto", 10**9)
    assert not isinstance(agent._update, CompiledUpdate)


def test_what_a_gpu_alone_can_do_is_refused_on_a_cpu() -> None:
    cfg = settings("agent=rainbow", "trainer.compile=true").agent
    with pytest.raises(
        UserError, match=r"trainer\.compile=true: on a CPU the update of this agent"
    ):
        compile_update(Rainbow(cfg, (2,), 3), True, 0)


def test_without_a_compiler_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> str:
        raise compiled.InvalidCxxCompiler

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", none)
    agent = make_agent()
    compile_update(agent, True, 0)
    assert not isinstance(agent._update, CompiledUpdate)
    assert "no C++ compiler is found" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", [(), ("agent.double=true", "agent.loss=huber", "agent.max_grad_norm=0.1")]
)
def test_a_compiled_update_learns_as_the_plain_one(given: tuple[str, ...]) -> None:
    batches = make_batch(updates=3), make_batch(updates=1), consolidating(2, 0.5)
    assert_learns_alike(make_agent(*given), make_agent(*given), batches)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ddpg", "td3"])
def test_a_compiled_actor_critic_learns_as_the_plain_one(agent: str) -> None:
    given = f"agent={agent}", "env=reacher"
    plain, other = (test_ddpg.make_agent(*given, hidden="[16]") for _ in range(2))
    before = {name: value.clone() for name, value in plain.state_dict().items() if "." in name}
    batches = [test_ddpg.make_batch(updates=updates) for updates in (3, 1)]
    assert_learns_alike(plain, other, batches)
    after = other.state_dict()
    assert not any(torch.equal(after[n], v) for n, v in before.items() if n.endswith("weight"))


def assert_learns_alike(plain: Any, other: Any, batches: Sequence[Batch]) -> None:
    compile_update(other, True, 0)
    if not isinstance(other._update, CompiledUpdate):
        pytest.skip("no C++ compiler")
    for batch in batches:
        expected, found = plain.update(batch), other.update(batch)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(plain.optimizer.state.values(), other.optimizer.state.values(), strict=True):
        for name, value in a.items():
            torch.testing.assert_close(b[name], value, rtol=1e-3, atol=1e-6)
