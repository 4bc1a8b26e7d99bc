"""A memory that is asked and nothing else, as a run has it."""

import numpy as np
import pytest

from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from tests.memories.helpers import vector_block
from tests.settings import settings

SPEC = EnvSpec("test", "gym", 1, (4,), np.dtype(np.float32), 1, 3, 1)


@pytest.mark.parametrize("place", ["observation", "next"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("memory", ["gq", "q_table"])
def test_an_observation_that_is_no_number_is_refused_and_changes_nothing(
    memory: str, value: float, place: str
) -> None:
    run = settings("agent=tabular", "env=mini_maze", f"memory={memory}")
    needs = Needs(spec=SPEC, batch_size=1, n_step=1, gamma=0.9, seed=0, threshold=run.threshold)
    asked = run.memory.build(needs)
    asked.extend(vector_block(5))
    before, bad = asked.storage.state_dict(), vector_block(5)
    wrong = bad["observation"] if place == "observation" else bad["next"]["observation"]
    wrong[2, 1] = value
    with pytest.raises(UserError, match="an observation has values that are not finite"):
        asked.extend(bad)
    after = asked.storage.state_dict()
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
