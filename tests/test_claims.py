"""The numbers of the README and of findings, reckoned again from the result files behind them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlmem.analysis.compare.statistics import Estimate, row_mean, stratified_bootstrap
from rlmem.units import readable_bytes
from studies.maze.compare import paired as maze_by_maze

ROOT = Path(__file__).parents[1]
CLAIMS = ROOT / "docs/claims.md"
WORDS = {3: "three", 5: "five"}
Claim = tuple[str, str]  # page, what must stand there


def results(study: str, env_id: str = "") -> pd.DataFrame:
    """results.csv of a study, of the environments whose id holds a text."""
    table = pd.read_csv(ROOT / "studies" / study / "results.csv")
    return table[table["env_id"].str.contains(env_id)] if env_id else table


def of(table: pd.DataFrame, label: str, column: str) -> pd.Series:
    """A column of the runs with a label, by seed."""
    return table[table["label"] == label].set_index("seed")[column].sort_index()


def paired(ours: pd.Series, theirs: pd.Series) -> Estimate:
    """How much higher ours is, of the seeds that both have."""
    found = (ours - theirs).dropna().to_numpy()
    return stratified_bootstrap([found], row_mean, widen=True)


def interval(estimate: Estimate, form: str = ".1f") -> str:
    """low to high, as pages write it."""
    return " to ".join(_short(bound, form) for bound in (estimate.low, estimate.high))


def _short(number: float | None, form: str) -> str:
    assert number is not None
    return re.sub(r"^(-?)0\.", r"\1.", f"{number:{form}}") if form != ".1f" else f"{number:{form}}"


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())


def reacher() -> list[Claim]:
    table, small = results("reacher_frontier"), "FIFO of the bytes of a_T .05"
    rows = "uniform", "reservoir, 250 kB", "a_T .05", small
    full, sample, coarse, listed = (of(table, row, "return_over_run") for row in rows)
    held, *shares = (of(table, row, "memory_bytes_peak").mean() for row in rows)
    level, less, more = paired(sample, full), paired(coarse, full), paired(sample, listed)
    below = paired(full, coarse)
    assert {len(full), len(sample), len(coarse), len(listed)} == {5}
    assert set(table["env_steps"]) == {30_000}
    assert ((sample - listed) > 0).all()  # in each of the seeds
    assert ((coarse - listed) > 0).all()
    assert all(0.13 < share / held < 0.145 for share in shares)  # a seventh
    claims = [
        f"in {shares[0] / held:.0%}".replace("%", " %") + " of its bytes: by the mean of the "
        f"learning curve {sample.mean():.1f} and {full.mean():.1f} (difference "
        f"{_short(level.value, '.2f')}, 95 % interval {interval(level, '.2f')})",
        f"about as good: {coarse.mean():.1f} ({below.value:.1f} below the full replay, "
        f"{interval(below)})",
        f"not: {listed.mean():.1f} ({more.value:.1f} below the sample, {interval(more)})",
        "in each of the five seeds",
        "Reacher, 30,000 steps",
        "a map of states, or a random sample of all that was seen, needs a seventh of the bytes on "
        "Reacher",
    ]
    found = f"(paired difference {level.value:.1f}, 95 % interval {interval(level)}), map "
    found += f"{coarse.mean():.1f} ({less.value:.1f}, {interval(less)}), list {listed.mean():.1f}"
    return [("README.md", c) for c in claims] + [("studies/reacher_frontier/findings.md", found)]


def sb3() -> list[Claim]:
    runs = {run["name"]: run for run in benchmark("sb3_atari")["results"]}
    default, ours = (runs[f"sb3 {kind}"] for kind in ("default", "compressed"))
    assert default["weights_crc32"] == ours["weights_crc32"]
    size, small = (run["metrics"]["bytes_a_transition"] for run in (default, ours))
    return [("README.md", f"takes {size:,.0f} bytes a transition on Road Runner. With rlmem's "
                          f"buffer it takes {small:,.0f},")]  # fmt: skip


def road_runner() -> list[Claim]:
    table = results("replay_table", "RoadRunner")
    table = table[(table["memory"] == "uniform") & table["memory.budget"].isna()]
    sizes, returns = {}, set()
    for kind in ("dense", "compressed"):
        (run,) = table[table["label"].str.contains(kind)].to_dict("records")
        sizes[kind] = readable_bytes(run["memory_bytes_peak"])
        returns.add(run["return_over_run"])
        assert run["memory_entries"] == 100_000
    assert len(returns) == 1
    return [("README.md", f"100,000 compressed transitions of Road Runner give the returns of "
                          f"uncompressed ones, in {sizes['compressed']} in place of "
                          f"{sizes['dense']} | the same return, one seed")]  # fmt: skip


def random_play() -> list[Claim]:
    runs = {run["recording"]["game"]: run for run in benchmark("bytes_random")["results"]}
    games = "road_runner", "ms_pacman", "pong"
    counted, resident = (
        [f"{1e3 * runs[game]['metrics'][name]:.0f}" for game in games]
        for name in ("counted_gb_a_million", "gb_a_million")
    )
    assert {run["recording"]["policy"] for run in runs.values()} == {"random"}
    said = "random play takes {} (Road Runner), {} (MsPacman), {} (Pong) bytes a transition"
    grew = "as counted; the process grew by {}, {} and {} |"
    return [("README.md", f"{said.format(*counted)} {grew.format(*resident)}")]


def frontiers() -> list[Claim]:
    breakout = results("minatar_frontier")
    by_label = breakout.groupby("label")["return_over_run"].mean()
    maps = [label for label in by_label.index if label.startswith("a_T .9")]
    lists = [f"FIFO of the bytes of {label}" for label in maps]
    beside = [(by_label[m], by_label[x]) for m, x in zip(maps, lists, strict=True) if x in by_label]
    assert beside
    assert all(listed > 0.9 * mapped for mapped, listed in beside)
    assert breakout.groupby("label")["seed"].nunique().max() == 3
    return [
        (
            "README.md",
            "on MinAtar a list of the newest transitions in as many bytes as "
            "the map does equally well | 5 and 3 seeds",
        )
    ]


def mountain_car() -> list[Claim]:
    table = results("medqn_small", "MountainCar")
    ours, large, small = (
        of(table, row, "eval_return_mean") for row in ("MeDQN(U), 32", "DQN, 10,000", "DQN, 32")
    )
    assert {len(ours), len(large), len(small)} == {20}
    level, above = paired(ours, large), paired(ours, small)
    return [
        ("README.md", f"on MountainCar MeDQN with 32 transitions ends at {ours.mean():.0f}, DQN "
                      f"with 10,000 at {large.mean():.0f} (about the same: difference "
                      f"{level.value:.0f}, {interval(level, '.0f')}), with 32 at "
                      f"{small.mean():.0f} | 20 seeds"),
        ("studies/medqn_small/findings.md",
         f"{above.value:.0f} (95 % interval {interval(above, '.0f')}), and {level.value:.0f} "
         f"against 10,000 transitions ({interval(level, '.0f')})"),
    ]  # fmt: skip


def mazes() -> list[Claim]:
    table = pd.read_csv(ROOT / "studies/maze/results.csv")
    random = table[table["maze"] != "released"]
    shorter, same = (maze_by_maze(random, *p) for p in (("GCMR", "Q table"), ("GBMR", "GCMR")))
    assert shorter.below == len(shorter.ratio) == 30
    ratio, bounds = _short(shorter.mean.value, ".2f"), interval(shorter.mean, ".2f")
    return [
        ("README.md", f"in mazes GCMR takes {ratio} of a Q table's steps ({bounds}); GBMR takes as "
                      f"many as GCMR ({same.mean.value:.3f}, {_short(same.mean.low, '.3f')} to "
                      f"{same.mean.high:.3f}) | 30 mazes"),
        ("studies/maze/findings.md", f"({ratio}, 95 % interval {bounds})"),
    ]  # fmt: skip


def episodic() -> list[Claim]:
    """Who is above whom, in each seed."""
    table = results("episodic_atari")

    def by_seed(game: str, label: str) -> pd.Series:
        return of(table[table["env_id"].str.contains(game)], label, "eval_return_mean")

    for game, best, others in (
        ("MsPacman", "MFEC", ("DQN", "PER", "NEC")),
        ("RoadRunner", "NEC", ("DQN", "PER", "MFEC")),
    ):
        for other in others:
            above = (by_seed(game, best) - by_seed(game, other)).dropna()
            assert len(above) == 3, (game, other)
            assert (above > 0).all(), (game, other)
    atari = table[~table["env_id"].str.contains("Pong")]
    assert set(atari["env_steps"]) == {100_000}
    return [("README.md", "at 100,000 steps MFEC, which trains no network, beats DQN, PER and NEC "
                          "on MsPacman; NEC beats DQN, PER and MFEC on Road Runner")]  # fmt: skip


def road_runner_memory() -> list[Claim]:
    table = results("road_runner_memory")
    rows = "FIFO 1 MiB", "uniform", "none"
    finals = [[f"{score:,.0f}" for score in of(table, row, "eval_return_mean")] for row in rows]
    assert {len(scores) for scores in finals} == {5}
    assert set(table["env_steps"]) == {50_000}
    climbed = table[table["eval_return_mean"] >= 1_950]
    stayed = table[table["eval_return_mean"] < 1_331]
    assert (len(climbed), len(stayed)) == (13, 12)
    assert [len(climbed[climbed["label"] == row]) for row in rows] == [5, 3, 0]
    sizes = of(table, "uniform", "memory_bytes_peak")
    held = readable_bytes(sizes.min()).removesuffix(" MiB"), readable_bytes(sizes.max())
    (updates,) = set(of(table, "uniform", "grad_steps"))
    newest, whole = (of(table, row, "return_over_run") for row in rows[:2])
    level = paired(newest, whole)
    findings = "studies/road_runner_memory/findings.md"
    return [
        ("README.md", f"from the newest 1 MiB as from all transitions in {held[0]} to {held[1]}: "
                      f"{newest.mean():.0f} and {whole.mean():.0f} a life over the run "
                      f"(difference {level.value:.0f}, {interval(level, '.0f')}) | 5 seeds; "
                      f"{updates:,} gradient steps"),
        *((findings, f"| {', '.join(scores)} |") for scores in finals),
    ]  # fmt: skip


def weaker_learner() -> list[Claim]:
    table = results("road_runner_memory_plain")
    newest, whole, none = (
        of(table, row, "return_over_run") for row in ("FIFO 1 MiB", "uniform", "none")
    )
    assert {len(newest), len(whole), len(none)} == {5}
    assert set(table["env_steps"]) == {50_000}
    size = readable_bytes(of(table, "uniform", "memory_bytes_peak").mean())
    (few,), (many,) = (set(of(table, row, "grad_steps")) for row in ("none", "uniform"))
    level, below = paired(newest, whole), paired(whole, none)
    near = f"{level.value:.0f}, {{}}{interval(level, '.0f')}"
    far = f"{below.value:.0f} below{{}}, {interval(below, '.0f')}"
    finals = [
        ", ".join(f"{score:,.0f}" for score in of(table, row, "eval_return_mean"))
        for row in ("FIFO 1 MiB", "uniform", "none")
    ]
    return [
        ("README.md", f"between the newest 1 MiB and all transitions in {size}: "
                      f"{newest.mean():.0f} and {whole.mean():.0f} a life over the run "
                      f"(difference {near.format('')}); with no replay, and so "
                      f"{few:,.0f} gradient steps in place of {many:,.0f}, {none.mean():.0f} "
                      f"({far.format('')}) | 5 seeds"),
        ("studies/road_runner_memory_plain/findings.md",
         f"1 MiB {newest.mean():.0f}, all {whole.mean():.0f} (difference "
         f"{near.format('95 % interval ')}), none {none.mean():.0f} ({far.format(' all')}); five"),
        ("studies/road_runner_memory_plain/findings.md",
         f"1 MiB of the newest transitions {finals[0]}; all of them {finals[1]}; "
         f"none {finals[2]}."),
    ]  # fmt: skip


def atari_100k() -> list[Claim]:
    table = results("atari_100k", "RoadRunner")
    drq = table[table["label"] == "DrQ(eps)"].sort_values("seed")["eval_return_mean"]
    best = " and ".join(f"{score:,.0f}" for score in drq)
    table = table[table["label"] == "DER"].sort_values("seed")
    assert set(table["memory_entries"]) == {100_000}
    ((steps, updates),) = set(zip(table["env_steps"], table["grad_steps"], strict=True))
    scores = " and ".join(f"{score:,.0f}" for score in table["eval_return_mean"])
    sizes = [readable_bytes(size).partition(" ") for size in table["memory_bytes_peak"]]
    held = " and ".join(number for number, *_ in sizes)
    assert {unit for *_, unit in sizes} == {"MiB"}
    assert table["human_normalized_score"].between(0.9, 1.1).all()  # about as a human
    return [("README.md", f"DrQ(eps) scored {best} on Road Runner after {steps:,} env steps"),
            ("README.md", f"scored {scores} on Road Runner after {steps:,} env steps (human 7,845; "
                          f"published 9,600); all {steps:,} transitions take {held} "
                          f"MiB | {len(table)} seeds; {updates:,} gradient steps")]  # fmt: skip


def equal_updates() -> list[Claim]:
    found, steps = [], set()
    for env_id in ("CartPole", "Breakout", "Acrobot"):
        table = results("equal_updates", env_id)
        rows = [table[table["label"] == row] for row in ("newest", "uniform, compressed")]
        assert {len(row) for row in rows} == {5}
        assert len({*rows[0]["grad_steps"], *rows[1]["grad_steps"]}) == 1
        steps.add(int(rows[0]["grad_steps"].iloc[0]))
        newest, whole = (row.set_index("seed")["return_over_run"].sort_index() for row in rows)
        found.append(paired(newest, whole) if env_id == "CartPole" else paired(whole, newest))
    above, near, below = found
    return [("README.md",
             f"on CartPole (over the run {above.value:.0f} above, {above.low:.1f} to "
             f"{above.high:.0f}), a little less on MinAtar Breakout "
             f"({_short(near.value, '.3f')} below, {interval(near, '.3f')}), less "
             f"on Acrobot ({below.value:.0f} below, {below.low:.1f} to {below.high:.0f}) | "
             f"5 seeds; {max(steps):,} and {min(steps):,} gradient steps")]  # fmt: skip


def no_replay() -> list[Claim]:
    table = results("no_replay", "Acrobot")
    ours, theirs, none = (
        table[table["label"] == row] for row in ("A3C", "DQN, uniform", "DQN, none")
    )
    assert {len(ours), len(theirs), len(none)} == {5}
    assert set(theirs["env_steps"]) == set(none["env_steps"]) == {100_000}
    assert ours["env_steps"].max() < 100_100  # a rollout more
    ends, asked = (of(table, row, "eval_return_mean") for row in ("A3C", "DQN, uniform"))
    sizes = [readable_bytes(runs["memory_bytes_peak"].mean()) for runs in (ours, theirs)]
    (few,), (many,) = (set(runs["grad_steps"]) for runs in (none, theirs))
    apart = paired(ends, asked)
    high = f"{apart.high:.0f}"
    said = f"(difference {apart.value:.1f}, {_short(apart.low, '.1f')} to {high})"
    return [
        ("README.md", f"without a replay A3C ends at {ends.mean():.1f} on Acrobot, DQN with one at "
                      f"{asked.mean():.1f} {said}, in {sizes[0]} in place of {sizes[1]}; DQN "
                      f"without one, in {few:,.0f} gradient steps in place of {many:,.0f}, at "
                      f"{none['eval_return_mean'].mean():.0f} | 5 seeds"),
        ("studies/no_replay/findings.md",
         f"{ends.mean():.1f} and {asked.mean():.1f} (difference {apart.value:.1f}, 95 % interval "
         f"{_short(apart.low, '.1f')} to {high}), in {sizes[0]} in place of {sizes[1]}."),
    ]  # fmt: skip


def breakout() -> list[Claim]:
    table = results("no_replay", "Breakout")
    rows = "PQN, long", "DQN, uniform", "PQN"
    long, asked, short = (of(table, row, "eval_return_mean") for row in rows)
    assert {len(long), len(asked), len(short)} == {5}
    seconds = [of(table, row, "cpu_seconds").mean() for row in rows[:2]]
    (many,), (updates,), (few,) = (set(of(table, row, "grad_steps")) for row in rows)
    above, below = paired(long, asked), paired(asked, short)
    return [
        ("README.md", f"PQN, which has no replay, ends its 500,000 steps at {long.mean():.1f} in "
                      f"{seconds[0]:.0f} CPU seconds, DQN with one after 100,000 steps at "
                      f"{asked.mean():.1f} in {seconds[1]:.0f} (difference {above.value:.1f}, "
                      f"{interval(above)}); at equal env steps it is {below.value:.1f} below "
                      f"({_short(below.low, '.1f').removeprefix('0')} to {below.high:.1f}) | "
                      f"5 seeds; {many:,}, {updates:,} and {few:,} gradient steps"),
        ("studies/no_replay/findings.md", f"{long.mean():.1f} and {asked.mean():.1f} on Breakout "
                                          f"(difference {above.value:.1f}, 95 % interval "
                                          f"{interval(above)})"),
    ]  # fmt: skip


def pong() -> list[Claim]:
    table = results("a3c", "Pong")
    runs = table[table["label"] == "LSTM, one frame"].sort_values("seed")
    assert len(runs) == 3
    assert runs["env_steps"].between(3_000_000, 3_000_100).all()  # and a rollout
    first, second, third = (f"{mean:.1f}" for mean in runs["train_return_mean"])
    size = readable_bytes(runs["memory_bytes_peak"].mean())
    *greedy, last = (f"{score:.0f}" for score in runs["eval_return_mean"])
    means = f"{first}, {second} and {third}"
    return [
        ("README.md", f"A3C wins Pong without a replay, in {size}: its last 100 training games in "
                      f"3,000,000 steps had a mean of {means} | 3 seeds |"),
        ("studies/a3c/findings.md", f"it was {means}, and the greedy network scored "
                                    f"{', '.join(greedy)} and {last}."),
    ]  # fmt: skip


def pqn_pong() -> list[Claim]:
    table = results("pong", "Pong")
    (long,), (theirs,) = (
        table[table["label"] == row].to_dict("records") for row in ("PQN, long", "DQN, uniform")
    )
    assert (long["env_steps"], theirs["env_steps"]) == (1_500_000, 300_000)
    means = [f"{run['train_return_mean']:.1f}" for run in (long, theirs)]
    minutes = [f"{run['cpu_seconds'] / 60:.0f}" for run in (long, theirs)]
    updates = f"{long['grad_steps']:,} and {theirs['grad_steps']:,} gradient steps"
    return [
        ("README.md", "PQN wins Pong without a replay: its last 100 training games in 1,500,000 "
                      f"steps had a mean of {means[0]}, in {minutes[0]} CPU minutes; DQN with one "
                      f"was at {means[1]} after 300,000, in {minutes[1]} | one seed; {updates}"),
        ("studies/pong/findings.md",
         f"in 1,500,000 env steps and {minutes[0]} CPU minutes: its last 100 training games had a "
         f"mean of {means[0]}. DQN with a replay is at {means[1]} after 300,000 steps and "
         f"{minutes[1]} CPU minutes."),
    ]  # fmt: skip


def cartpole_speed() -> list[Claim]:
    speeds = {
        contender["name"]: [run["env_steps_per_second"] for run in contender["runs"]]
        for contender in benchmark("cartpole")["contenders"]
        if contender["name"] in ("bare", "rlmem, updates_per_step=1")
    }
    ratio = np.median(np.divide(speeds["rlmem, updates_per_step=1"], speeds["bare"]))
    said = f"on CartPole the trainer makes {_short(ratio, '.2f')} of the steps a second of a bare "
    return [("README.md", f"{said}loop | median of {len(speeds['bare'])} runs")]


SOURCES: list[Callable[[], list[Claim]]] = [
    *(reacher, sb3, road_runner, random_play, frontiers),
    *(
        mountain_car,
        mazes,
        episodic,
        no_replay,
        breakout,
        pong,
        road_runner_memory,
        weaker_learner,
        equal_updates,
    ),
    *(atari_100k, pqn_pong, cartpole_speed),
]


def plain(page: str) -> str:
    """The text of a page without the breaks of its lines."""
    return " ".join((ROOT / page).read_text().replace("**", "").split())


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_a_claim_is_what_its_result_file_says(source: Callable[[], list[Claim]]) -> None:
    for page, said in source():
        assert said in plain(page), f"{page} does not say what the results say: {said}"


def test_every_row_of_the_evidence_has_a_claim_that_is_checked() -> None:
    said = [text for source in SOURCES for page, text in source() if page == "README.md"]
    evidence = (ROOT / "README.md").read_text().split("## Evidence")[1].split("\n## ")[0]
    rows = [row for row in evidence.splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 5
    for row in rows:
        assert any(text in row for text in said), f"no check for: {row}"


def test_the_list_of_claims_names_files_that_are_there() -> None:
    rows = re.findall(r"^\| (?!what|page \||---)(.*) \|$", CLAIMS.read_text(), re.M)
    assert len(rows) >= len(SOURCES)
    for row in rows:
        *_, files, commands, commit = row.split(" | ")
        named = re.findall(r"\]\(([^)#]+)\)", files)
        assert named, f"no result file: {row}"
        assert all((CLAIMS.parent / file).exists() for file in named), row
        assert re.search(r"`(make|python) [^`]+`", commands), row
        assert re.fullmatch(r"[0-9a-f]{7}(, [0-9a-f]{7})*", commit), row


def test_the_commands_of_the_list_name_studies_and_scripts_that_are_there() -> None:
    for command in re.findall(r"`((?:make|python) [^`]+)`", CLAIMS.read_text()):
        for study in re.findall(r"NAME=(\w+)", command):
            assert (ROOT / "studies" / study / "study.yaml").exists(), command
        for script in re.findall(r"python (\S+\.py)", command):
            assert (ROOT / script).exists(), command
