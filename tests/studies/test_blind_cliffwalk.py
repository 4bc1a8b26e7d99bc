"""The Blind Cliffwalk: its memory, its learning, and how many updates each sampler takes."""

import csv
import shutil
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmem.cli import _study
from rlmem.errors import UserError
from rlmem.runs.study_code import load_code

FOLDER = Path(__file__).parents[2] / "studies/blind_cliffwalk"
code: Any = load_code(FOLDER)
Result, ratios, summarize = code.Result, code.results.ratios, code.results.summarize
read_results, write_results = code.read_results, code.write_results
SAMPLERS, updates_needed, read_cliffwalk = code.SAMPLERS, code.updates_needed, code.read_cliffwalk
all_transitions, learn = code.simulation.all_transitions, code.simulation.learn
first_values, true_values = code.simulation.first_values, code.simulation.true_values

DEFINITION = """
sizes: [2, 3]
samplers: [uniform, prioritized, oracle]
seeds: 2
"""


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_memory_holds_what_all_sequences_give(n: int) -> None:
    walked: Counter = Counter()
    for actions in product((0, 1), repeat=n):
        for state, action in enumerate(actions):
            last = state == n - 1
            on = action == 1 and not last
            reward = 1.0 if action == 1 and last else 0.0
            walked[state, action, state + 1 if on else -1, reward] += 1
            if action == 0:
                break
    memory = all_transitions(n, np.random.default_rng(0))
    rows = zip(memory.state, memory.action, memory.following, memory.reward, strict=True)
    assert Counter((int(s), int(a), int(f), float(r)) for s, a, f, r in rows) == walked
    assert len(memory) == 2 ** (n + 1) - 2
    assert memory.reward.sum() == 1


def test_the_true_values_are_those_that_no_update_moves() -> None:
    n = 5
    memory, q = all_transitions(n, np.random.default_rng(0)), true_values(n)
    columns = memory.state, memory.action, memory.following, memory.reward
    for index in range(len(memory)):
        *_, error = learn(q.copy(), true_values(n) + 1, *columns, np.array([index]))
        assert error == pytest.approx(0, abs=1e-12)


def test_learning_is_tabular_q_learning_until_the_error_is_small() -> None:
    n, rng = 4, np.random.default_rng(1)
    memory, q = all_transitions(n, rng), first_values(n, rng)
    plain, truth = q.copy(), true_values(n)
    index = rng.integers(len(memory), size=5000)
    columns = memory.state, memory.action, memory.following, memory.reward
    made, close, _ = learn(q, truth, *columns, index)
    count = 0
    for i in index:
        count += 1
        after = plain[memory.following[i]].max() if memory.following[i] >= 0 else 0.0
        place = memory.state[i], memory.action[i]
        plain[place] += 0.25 * (memory.reward[i] + 0.75 * after - plain[place])
        if ((plain - truth) ** 2).mean() < 1e-3:
            break
    assert close
    assert made == count
    assert q == pytest.approx(plain)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_seed_decides_a_run(sampler: str) -> None:
    assert updates_needed(4, sampler, 1) == updates_needed(4, sampler, 1)
    assert updates_needed(4, sampler, 1).updates != updates_needed(4, sampler, 2).updates


@pytest.mark.slow
def test_priorities_save_more_the_longer_the_walk() -> None:
    """studies/blind_cliffwalk has more seeds and n = 2 to 16."""
    results = [
        updates_needed(n, sampler, seed)
        for n in (4, 7, 10)
        for sampler in SAMPLERS
        for seed in range(5)
    ]
    found = summarize(results)
    assert all(result.converged for result in results)
    for name in ("prioritized", "rank"):
        saved = ratios(found, name).to_list()
        assert saved == sorted(saved)
        assert saved[0] > 1.5
        assert saved[-1] > 5
        medians = found["median"].unstack("sampler")
        assert (medians["oracle"] < medians[name]).all()


def test_a_run_that_takes_too_long_is_given_up_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code.simulation, "MOST", 1)
    result = updates_needed(5, "prioritized", 0)
    assert (result.updates, result.converged) == (62, False)
    table = code.page.table(summarize([result]), ["prioritized"])
    assert table["prioritized"].to_list() == ["62 (1 given up)"]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "study.yaml").write_text(DEFINITION)
    return tmp_path


def test_the_command_runs_what_is_missing_and_writes_the_page(study: Path) -> None:
    kept = Result(2, "uniform", 0, 12_345, True)
    write_results([kept], study / "results.csv")
    (study / "findings.md").write_text("Priorities **help**.")
    assert _study(str(study), "", 1) == 0
    with (study / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2
    assert kept in read_results(study / "results.csv")
    assert {row["transitions"] for row in rows} == {"6", "14"}
    page = (study / "report/index.html").read_text()
    assert "<strong>help</strong>" in page
    assert "uniform / prioritized" in page
    assert "<svg" in page
    assert {path.suffix for path in (study / "report/figures").iterdir()} == {".png", ".svg"}


def test_only_names_samplers(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _study(str(study), "oracle", 1) == 0
    assert {result.sampler for result in read_results(study / "results.csv")} == {"oracle"}
    assert _study(str(study), "greedy", 1) == 2
    line = "--only greedy: no such sampler; there are uniform, prioritized, oracle"
    assert line in capsys.readouterr().err


def test_a_report_alone_runs_nothing(study: Path) -> None:
    assert _study(str(study), "", 0) == 0
    assert not (study / "results.csv").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sizes: [2, 40]", "sizes=[2, 40]; a list of numbers of states, each from 2 to 20"),
        ("sizes: 3", "sizes=3; a list of numbers of states"),
        ("samplers: [greedy]", "samplers=['greedy']; a list of uniform, prioritized, rank, oracle"),
        ("seeds: 0", "seeds=0; a number of runs"),
        ("rows: {}", "unknown key rows"),
    ],
)
def test_a_mistake_in_the_definition_is_one_line(study: Path, line: str, message: str) -> None:
    definition, key = study / "study.yaml", line.partition(":")[0]
    others = [row for row in definition.read_text().splitlines() if not row.startswith(key)]
    definition.write_text("\n".join([*others, line]))
    with pytest.raises(UserError) as caught:
        read_cliffwalk(study)
    assert message in str(caught.value)


def test_a_results_file_of_something_else_is_refused(study: Path) -> None:
    (study / "results.csv").write_text("env_id,seed\nx,1\n")
    with pytest.raises(UserError, match="cannot be read"):
        _ = read_results(study / "results.csv")
