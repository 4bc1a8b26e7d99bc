"""The compiled update: when it is made, and that it learns as the plain one."""

import pytest
import torch

from rlmem.agents import compiled
from rlmem.agents.compiled import REPAYS_FROM, CompiledUpdate, compile_update
from rlmem.errors import UserError
from tests.agents.test_consolidation import consolidating
from tests.agents.test_dqn import make_agent, make_batch


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
    with pytest.raises(UserError, match=r"trainer\.compile=True"):
        compile_update(agent, True, 10**9)


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
    plain, other = make_agent(*given), make_agent(*given)
    compile_update(other, True, 0)
    for batch in (make_batch(updates=3), make_batch(updates=1), consolidating(2, 0.5)):
        expected, found = plain.update(batch), other.update(batch)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(plain.optimizer.state.values(), other.optimizer.state.values(), strict=True):
        for name, value in a.items():
            torch.testing.assert_close(b[name], value, rtol=1e-3, atol=1e-6)
