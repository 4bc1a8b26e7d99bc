"""A few fixed cases of each class of torture; `make torture` tries as many as there is time for."""

import os
from pathlib import Path

import pytest

from tests.torture import kills, overrides, soak
from tests.torture.__main__ import CLASSES, table
from tests.torture.runner import Tally, Told, run_trial
from tests.torture.runs import SHARED
from tests.torture.soak import Look, check_constant

CASES = [("kills", 100, None), ("damage", 101, None), ("overrides", 3, None), ("limits", 2, None)]
CASES += [("crafted", 12, "states"), ("crafted", 3, "files of a run")]
CASES += [("library", 0, "series against a list"), ("library", 1, "series against a twin")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed", "kind"), CASES)
def test_a_fixed_case_survives(
    name: str, seed: int, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED, str(tmp_path))
    survived, told = run_trial(CLASSES[name], name, seed)
    assert survived, told.what
    assert kind is None or set(told.kinds) == {kind}


@pytest.mark.slow
def test_a_short_run_grows_by_what_it_reports_and_keeps_no_descriptor(tmp_path: Path) -> None:
    given = [*soak.RUNS["MinAtar"], "trainer.max_env_steps=6500"]
    looks = soak.watched(tmp_path / "run", given, 120, since=3000)
    # Without the checkpoint at 6,000 env steps and the end: they open further files meanwhile, and
    # take long on a busy machine.
    looks = [look for look in looks if look.env_steps < 6000]
    assert looks[-1].env_steps > looks[0].env_steps
    check_constant(looks, "MinAtar")


def test_a_run_that_grows_more_than_it_reports_is_found() -> None:
    reported = [Look(n, 10_000_000 + 500 * n, 500 * n, 30) for n in range(1000)]
    assert check_constant(reported, "run") == 0
    with pytest.raises(AssertionError, match="bytes more than reported"):
        check_constant([look._replace(reported=0) for look in reported], "run")
    ended = [*reported, reported[-1]._replace(resident=1)]  # as the process ends
    with pytest.raises(AssertionError, match="bytes more than reported"):
        check_constant([look._replace(reported=0) for look in ended], "run")


def test_a_run_that_keeps_descriptors_is_found() -> None:
    looks = [Look(n, 10_000_000, 0, 30 + n // 100) for n in range(1000)]
    with pytest.raises(AssertionError, match="39 descriptors are open, 30 were"):
        check_constant(looks, "run")


def test_what_is_open_for_a_while_is_not_kept() -> None:
    # As a checkpoint is written.
    open_now = [31 if n >= 900 and n % 10 else 30 for n in range(1000)]
    looks = [Look(n, 10_000_000, 0, many) for n, many in enumerate(open_now)]
    assert check_constant(looks, "run") == 0


def test_every_key_of_every_group_has_its_turn() -> None:
    planned = [key for _, keys in overrides.plan() for key in keys]
    assert len(planned) == len(set(planned))
    assert {"seed", "agent.lr", "memory.sampler.alpha", "env.bits", "threshold.activation"} <= {
        *planned
    }


def test_what_ends_a_process_is_told() -> None:
    def crash(rng: object, folder: object) -> Told:
        os.kill(os.getpid(), 9)
        return Told("")

    survived, told = run_trial(crash, "crash", 0)
    assert (survived, "code -9" in told.what) == (False, True)


def test_a_trial_counts_its_cases_and_what_they_are_of() -> None:
    tally = Tally(100)
    survived, told = run_trial(lambda rng, folder: Told("x", 3, ("a", "b", "a")), "x", 0)
    tally.add(0, survived, told)
    tally.add(1, False, Told("y"))
    assert (tally.cases, tally.survived, tally.trials) == (4, 3, 2)
    assert table({"kills": tally}).endswith("| kills | 4 | 3 |\n\nkills: a 2; b 1")


def test_an_aimed_kill_ends_a_process_at_that_write(tmp_path: Path) -> None:
    def write() -> int:
        (tmp_path / "a").mkdir()
        os.replace(tmp_path / "a", tmp_path / "b")
        (tmp_path / "c").mkdir()
        return 0

    cut = tmp_path / "cut"
    assert kills.aimed(write, cut, 2) == "aimed"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "cut.txt"}
    (tmp_path / "a").rmdir()
    assert kills.aimed(write, cut, 4) == "too late"
