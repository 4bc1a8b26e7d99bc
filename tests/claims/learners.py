"""What learners reach and how fast they are, reckoned again from the result files."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from rlmem.analysis.compare.statistics import iqm, row_mean, stratified_bootstrap
from rlmem.envs.scores import human_random_scores
from rlmem.units import readable_bytes
from tests.claims.files import (
    Claim,
    benchmark,
    evaluated,
    interval,
    listed,
    of,
    paired,
    results,
    short,
)

# Scores in 100 games after 100,000 steps (DrQ(eps): Agarwal 2021, DER: van Hasselt 2019).
PUBLISHED = {
    "DrQ(eps)": {"Frostbite": 1014, "MsPacman": 1218, "Hero": 4168, "Alien": 865, "Pong": -9.1},
    "DER": {"Frostbite": 867, "MsPacman": 1204, "Hero": 6857, "Alien": 740, "Pong": -19.3},
}
# Beside the six games that means are of.
MORE = {"DrQ(eps), as published": {"BankHeist": 233, "Boxing": 9.0},
        "DER": {"BankHeist": 51, "Boxing": 0.2}}  # fmt: skip
# A row of the study -> whose published scores stand beside it.
AGENTS = {"DrQ(eps), as published": "DrQ(eps)", "DrQ(eps)": "DrQ(eps)", "DER": "DER"}
ROAD_RUNNER = {"DrQ(eps)": 11_211, "DER": 9_600}


def _human_random(game: str) -> tuple[float, float]:
    """A game's scores of random play and of a human."""
    return human_random_scores()[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", game).lower()]


def _of_game(agent: str, game: str, published: float) -> str:
    """A game's row of an agent in the pages, with each seed's score and bytes."""
    table = results("atari_100k", game)
    runs = table[table["label"] == agent].sort_values("seed")
    assert [*runs["seed"]] == [*range(len(runs))]
    random, human = _human_random(game)
    normal = short(float(runs["human_normalized_score"].mean()), ".3f")
    theirs = short((published - random) / (human - random), ".3f")
    form = ",.0f" if human > 100 else ".1f"
    return (
        f"| {game} | {listed(runs['eval_return_mean'], form)} | {published:,} "
        f"| {random:{form}}, {human:{form}} "
        f"| {normal}, {theirs} | {listed(runs['memory_bytes_peak'] / 2**20, '.1f')} |"
    )


def _rows_of_drq() -> dict[str, pd.DataFrame]:
    """What a run held -> the runs of Road Runner, by seed, each with five."""
    table, row = results("atari_100k", "RoadRunner"), "DrQ(eps), epsilon by 25,000"
    labels = {"1 MiB": f"{row}, newest 1 MiB", "4 MiB": f"{row}, newest 4 MiB", "all": row}
    rows = {}
    for held, label in labels.items():
        runs = table[table["label"] == label].set_index("seed").sort_index()
        assert [*runs.index] == [*range(5)]
        assert set(runs["grad_steps"]) == {98_401}
        rows[held] = runs.assign(halfway=evaluated("atari_100k", "RoadRunner", label, 50_000))
    return rows


def atari_100k() -> list[Claim]:
    table = results("atari_100k", "RoadRunner")
    table = table[~table["label"].str.contains("newest")]
    assert set(table["memory_entries"]) == {100_000}
    ((steps, updates),) = set(zip(table["env_steps"], table["grad_steps"], strict=True))
    rows = "DrQ(eps)", "DrQ(eps), epsilon by 25,000", "DER", "DrQ(eps), as published"
    drq, longer, der, right = (of(table, row, "eval_return_mean") for row in rows)
    for scores in (drq, longer, der, right):
        assert list(scores.index) == [0, 1, 2, 3, 4]

    def told(scores: pd.Series, between: str) -> str:
        mean = stratified_bootstrap([scores.to_numpy()], row_mean, widen=True)
        return f"{mean.value:,.0f}{between}{interval(mean, ',.0f')})"

    others, middles, less_told = [], {}, []
    for agent, name in AGENTS.items():
        games, told_here = PUBLISHED[name], less_told if agent == "DrQ(eps)" else others
        told_here += [_of_game(agent, *published) for published in games.items()]
        table_of_six = results("atari_100k", "|".join((*games, "RoadRunner")))
        normal = table_of_six.query(f"label == '{agent}'").groupby("env_id")
        assert len(normal) == 6
        middles[agent] = short(float(iqm(normal["human_normalized_score"].mean())), ".2f")
        theirs = []
        for game, score in (*games.items(), ("RoadRunner", ROAD_RUNNER[name])):
            random, human = _human_random(game)
            theirs.append((score - random) / (human - random))
        told_here.append(
            f"Road Runner's of its five seeds, is {middles[agent]}; the published "
            f"scores give {short(float(iqm(np.array(theirs))), '.2f')}."
        )
    others += [
        _of_game(agent, game, published)
        for agent, games in MORE.items()
        for game, published in games.items()
    ]
    label, beside = "DrQ(eps), head resets", results("atari_100k", "Boxing")
    assert {*pd.concat([table, beside]).query(f"label == '{label}'")["grad_steps"]} == {updates}
    road, boxing = (of(runs, label, "eval_return_mean") for runs in (table, beside))
    assert (len(road), len(boxing)) == (3, 1)
    assert road.max() < right.min()
    without = of(beside, rows[-1], "eval_return_mean")
    a, b, c = (f"{score:,.0f}" for score in road)
    others += [
        f"DrQ(eps) with head resets scored {a}, {b} and {c} (three seeds), each below each of the "
        f"five seeds without ({right.min():,.0f} to {right.max():,.0f}).",
        f"One seed of Boxing scored {boxing[0]:.1f} ({without[0]:.1f} without).",
    ]
    half, half_without, half_boxing = (
        evaluated("atari_100k", game, of_row, 50_000)
        for game, of_row in (("RoadRunner", label), ("RoadRunner", rows[-1]), ("Boxing", label))
    )
    a, b, c = (f"{score:,.0f}" for score in half)
    others.append(
        f"After 50,000 env steps the scores were {a}, {b} and {c} ({half_without.min():,.0f} to "
        f"{half_without.max():,.0f} without), and {half_boxing[0]:.1f} on Boxing."
    )
    sizes = [of(runs, label, "memory_bytes_peak") / 2**20 for runs in (table, beside)]
    a, b, c = (f"{size:.1f}" for size in sizes[0])
    others.append(f"They took {a}, {b} and {c} MiB, and {sizes[1][0]:.1f}.")
    others.append(f"| 3 | {road.mean():,.0f} | {listed(road)} | | {listed(sizes[0], '.1f')} |")
    updated = f"5 seeds; {updates:,} gradient steps |"
    packed = [of(table, row, "memory_bytes_peak") / 2**20 for row in rows]
    # Since chunks are packed again: the last seed of the first row, and the second.
    present = [packed[0].iloc[-1], *packed[1]]
    assert sum(size <= 16 for size in present) == 3
    apart, gain = paired(longer, drq), longer - drq
    less = " (" + interval(apart, ",.0f")
    means = [told(scores, " (") for scores in (drq, longer, der, right)]
    for mean, scores, sizes in zip(means, (drq, longer, der, right), packed, strict=True):
        others.append(f"| {len(scores)} | {mean} | {listed(scores)} |")
        others.append(f"| {listed(sizes, '.1f')} |")
    assert packed[3].max() <= 16
    held = f"{packed[3].min():.1f} to {packed[3].max():.1f}"
    said = told(right, " (95 % interval ").removesuffix(")")
    return [("README.md", f"after {steps:,} env steps of Road Runner DrQ(eps), exploring as "
                          f"published, scored {said}; published 11,211, a human 7,845), with "
                          f"all transitions in {held} MiB | {updated}"),
            ("README.md", "DrQ(eps) on Road Runner with less exploration scored "
                          f"{told(drq, ' (95 % interval ')}, one run of five 0 | {updated}"),
            ("docs/atari.md", f"exploring as published, scored {means[3][:-1]}; five seeds"),
            ("docs/atari.md", f"Data-efficient Rainbow (DER) {means[2][:-1]}; five seeds, publ"),
            ("studies/atari_100k/findings.md", f"in the mean of five seeds {means[3]}"),
            *((page, f"{held} MiB from beginning to end")
              for page in ("studies/atari_100k/findings.md", "docs/atari.md")),
            ("README.md", f"6,600 scored {means[1].removesuffix(')')}); this was chosen because a "
                          f"run on this game had scored 0 | {updated}"),
            ("README.md", f"data-efficient Rainbow scored {means[2][:-1]}; published 9,600) "
                          f"on Road Runner after 100,000 env steps | {updated}"),
            ("README.md", "interquartile mean (without the best and the worst game) of "
                          "human-normalised scores, (score - random) / (human - random), of "
                          f"{middles['DrQ(eps), as published']} (published scores: .20), "
                          "data-efficient Rainbow "
                          f"of {middles['DER']} ("),
            ("docs/atari.md", f"the longer schedule is {apart.value:,.0f} above the shorter"
                              f"{less}): they do not"),
            ("studies/atari_100k/findings.md",
             f"{' and '.join(listed(gain).rsplit(', ', 1))} ({apart.value:,.0f} in the mean, "
             f"{less[2:]}):"),
            ("studies/atari_100k/findings.md",
             f"other runs have a mean of {drq.drop(3).mean():,.0f};"),
            *(("studies/atari_100k/findings.md", text) for text in less_told),
            *((page, text) for page in ("studies/atari_100k/findings.md", "docs/atari.md")
              for text in (*others, f"{min(present):.1f} to {max(present):.1f} MiB, three of")),
    ]  # fmt: skip


def bytes_of_drq() -> list[Claim]:
    """What the newest 1 and 4 MiB and all transitions buy DrQ(eps)."""
    rows = _rows_of_drq()
    small, middle, whole = rows.values()
    score, trained, half = "eval_return_mean", "train_return_mean", "halfway"
    columns = half, score, trained, "return_over_run"
    assert (small["memory_bytes_peak"] <= 2**20).all()
    assert (middle["memory_bytes_peak"] <= 2**22).all()
    assert (small[score] < whole[score]).all()
    assert (small[trained] < whole[trained]).all()

    def apart(above: str, below: str, column: str, what: str = "") -> str:
        found = paired(rows[above][column], rows[below][column])
        return f"{found.value:,.0f} ({what}{interval(found, ',.0f')})"

    low, high = (f"{size / 2**20:.1f}" for size in whole["memory_bytes_peak"].agg(["min", "max"]))
    named = {"1 MiB": "newest 1 MiB", "4 MiB": "newest 4 MiB", "all": f"all, {low} to {high} MiB"}
    table = []
    for held, runs in rows.items():
        few, many = runs["memory_entries"].agg(["min", "max"])
        entries = f"{few:,} to {many:,}" if few < many else f"{few:,}"
        at_half, end, lives, over = (f"{runs[column].mean():,.0f}" for column in columns)
        each = f"{at_half} | {end} | {listed(runs[score])} | {lives} | {over} |"
        table.append(f"| {named[held]} | {entries} | {each}")
    pairs = ("all", "1 MiB"), ("4 MiB", "1 MiB"), ("all", "4 MiB")
    differences = [
        f"| {above} above {below} | " + " | ".join(apart(above, below, c) for c in columns) + " |"
        for above, below in pairs
    ]
    ends = [f"{runs[score].mean():,.0f}" for runs in rows.values()]
    lost, gained = (runs[score] - runs[half] for runs in (small, whole))
    more = gained - lost
    below = [apart("all", "1 MiB", score, what).replace("(", "below, ")
             for what in ("95 % interval ", "")]  # fmt: skip
    with_four = [apart(*pair, score) for pair in pairs[1:]]
    four = with_four[1].replace("(", "below, ")
    halfway = apart("all", "1 MiB", half).replace("(", "below, ")
    above_one = with_four[0].replace(" (", " above the newest 1 MiB (")
    below_all = with_four[1].replace(" (", " below all transitions (")
    findings = "studies/atari_100k/findings.md"
    return [
        ("README.md", f"scored {ends[0]} with the newest 1 MiB and {ends[2]} with all transitions "
                      f"in {low} to {high} MiB ({below[1]}; after 50,000 steps no "
                      f"difference was seen ({halfway} | 5 seeds"),
        ("README.md", f"scored {ends[2]} with all transitions, in {low} to {high} MiB, and "
                      f"{ends[0]} with the newest 1 MiB ({below[0]}."),
        ("README.md", f"With the newest 4 MiB it scored {ends[1]}, {above_one} and {below_all}"),
        ("README.md", f"scored {ends[1]} with the newest 4 MiB, {above_one} and {below_all} |"),
        (findings, f"scored {ends[2]} with all transitions in {low} to "
                   f"{high} MiB and {ends[0]} with the newest 1 MiB ({below[0]}, less"),
        (findings, f"{ends[1]} ({four}."),
        ("docs/atari.md", f"ended at {ends[0]} with the newest 1 MiB of transitions and at "
                          f"{ends[2]} with all ({below[0]}, less in each of five seeds"),
        (findings, f"the newest 1 MiB lost {-lost.mean():,.0f} points, all transitions gained "
                   f"{gained.mean():,.0f}; the gain was larger by {more.min():,.0f} to "
                   f"{more.max():,.0f} in each seed"),
        ("docs/atari.md", f"all transitions is larger by {more.min():,.0f} to {more.max():,.0f}"),
        *((findings, text) for text in differences),
        *((page, text) for page in (findings, "docs/atari.md") for text in table),
    ]  # fmt: skip


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
    over = paired(*(of(table, row, "return_over_run") for row in ("DQN, uniform", "A3C")))
    assert ours["grad_steps"].between(5_250, 5_450).all()
    high = f"{apart.high:.0f}"
    said = f"(difference {apart.value:.1f}, {short(apart.low, '.1f')} to {high})"
    return [
        ("README.md", f"without a replay A3C ends at {ends.mean():.1f} on Acrobot, DQN with one at "
                      f"{asked.mean():.1f} {said}, in {sizes[0]} in place of {sizes[1]} "
                      f"and some 5,400 gradient steps in place of {many:,.0f}; over the run A3C is "
                      f"{over.value:.0f} below ({interval(over, '.0f')}). DQN without a replay, in "
                      f"{few:,.0f} gradient steps, ends at "
                      f"{none['eval_return_mean'].mean():.0f} | 5 seeds"),
        ("studies/no_replay/findings.md",
         f"{ends.mean():.1f} and {asked.mean():.1f} (difference {apart.value:.1f}, 95 % interval "
         f"{short(apart.low, '.1f')} to {high}), in {sizes[0]} in place of {sizes[1]}."),
    ]  # fmt: skip


def breakout() -> list[Claim]:
    table = results("no_replay", "Breakout")
    rows = "PQN, long", "DQN, uniform", "PQN"
    long, asked, equal = (of(table, row, "eval_return_mean") for row in rows)
    assert {len(long), len(asked), len(equal)} == {5}
    (many,), (updates,), (few,) = (set(of(table, row, "grad_steps")) for row in rows)
    above, below = paired(long, asked), paired(asked, equal)
    size, theirs = (of(table, row, "memory_bytes_peak").mean() / 2**20 for row in rows[:2])
    return [
        ("README.md", f"PQN, which has no replay, ends at {long.mean():.1f} after 500,000 env "
                      f"steps ({many:,} gradient steps), DQN with "
                      f"one at {asked.mean():.1f} after 100,000 ({updates:,}): "
                      f"difference {above.value:.1f}, {interval(above)}. After 100,000 ({few:,} "
                      f"gradient steps) PQN is {below.value:.1f} below "
                      f"({short(below.low, '.1f').removeprefix('0')} to {below.high:.1f}). Its "
                      f"rollout takes {size:.1f} MiB, DQN's replay {theirs:.1f} | 5 seeds |"),
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
    size, smaller = (f"{run['memory_bytes_peak'] / 2**20:.1f}" for run in (long, theirs))
    return [
        ("README.md", "in one run PQN won Pong without a replay: its last 100 training games in "
                      f"1,500,000 env steps had a mean of {means[0]}, in {minutes[0]} CPU "
                      f"minutes. DQN with one was at {means[1]} after 300,000, in {minutes[1]}. "
                      "PQN's rollout takes "
                      f"{size} MiB, DQN's compressed replay {smaller} | one seed; {updates}"),
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
    said = f"on CartPole the trainer makes {short(ratio, '.2f')} of the steps a second of a bare "
    return [("README.md", f"{said}loop | median of {len(speeds['bare'])} runs")]


SOURCES: list[Callable[[], list[Claim]]] = [
    atari_100k,
    bytes_of_drq,
    no_replay,
    breakout,
    pong,
    pqn_pong,
    cartpole_speed,
]
