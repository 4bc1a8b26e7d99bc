"""What learners reach and how fast they are, reckoned again from the result files."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from rlmem.analysis.compare.statistics import iqm, row_mean, stratified_bootstrap
from rlmem.envs.scores import human_random_scores
from rlmem.units import readable_bytes
from tests.claims.files import Claim, benchmark, evaluated, interval, of, paired, results, short

# DrQ(eps)'s scores in 100 games after 100,000 steps (Agarwal 2021).
PUBLISHED = {"Frostbite": 1014, "MsPacman": 1218, "Hero": 4168, "Alien": 865, "Pong": -9.1}


def _of_one_seed(game: str, published: float) -> str:
    """A game's row of DrQ(eps) in the pages."""
    (run,) = results("atari_100k", game).to_dict("records")
    assert run["label"] == "DrQ(eps)"
    random, human = human_random_scores()[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", game).lower()]
    normal = short(run["human_normalized_score"], ".3f")
    theirs = short((published - random) / (human - random), ".3f")
    form = ",.0f" if human > 100 else ".1f"
    return (
        f"| {game} | {run['eval_return_mean']:{form}} | {published:,} "
        f"| {random:{form}}, {human:{form}} "
        f"| {normal}, {theirs} | {run['memory_bytes_peak'] / 2**20:.1f} |"
    )


def atari_100k() -> list[Claim]:
    table = results("atari_100k", "RoadRunner")
    table = table[~table["label"].str.contains("newest")]
    assert set(table["memory_entries"]) == {100_000}
    ((steps, updates),) = set(zip(table["env_steps"], table["grad_steps"], strict=True))
    rows = "DrQ(eps)", "DrQ(eps), epsilon by 25,000", "DER"
    drq, longer, der = (of(table, row, "eval_return_mean") for row in rows)
    assert list(drq.index) == [0, 1, 2, 3, 4]
    assert list(longer.index) == [0, 1, 2, 3, 4]

    def told(scores: pd.Series, of_them: str = "{}") -> str:
        mean = stratified_bootstrap([scores.to_numpy()], row_mean, widen=True)
        each = ", ".join(f"{score:,.0f}" for score in scores)
        return f"{mean.value:,.0f}{of_them.format(each)}{interval(mean, ',.0f')}"

    others = [_of_one_seed(game, published) for game, published in PUBLISHED.items()]
    normal = results("atari_100k").query("label == 'DrQ(eps)'").groupby("env_id")
    middle = float(iqm(normal["human_normalized_score"].mean()))
    assert len(normal) == 6
    others.append(f"Road Runner's of its five seeds, is {short(middle, '.2f')};")
    briefly = told(drq, " (95 % interval ")
    said = told(drq, " in the mean ({}; 95 % interval ")
    later = told(longer, " ({}; 95 % interval ")
    scores = " and ".join(f"{score:,.0f}" for score in der)
    each = f" | 5 seeds; {updates:,} gradient steps |"
    packed = [of(table, row, "memory_bytes_peak") / 2**20 for row in rows[:2]]
    # Since chunks are packed again: the last seed of the first row, and the second.
    present = [packed[0].iloc[-1], *packed[1]]
    assert sum(size <= 16 for size in present) == 3
    return [("README.md", f"after {steps:,} env steps of Road Runner DrQ(eps) scored "
                          f"{briefly}; published 11,211, with some more exploration; a human "
                          f"7,845){each}"),
            ("README.md", f"6,600 it scored {told(longer, ' (')}); chosen after a failure on this "
                          f"game{each}"),
            ("README.md", f"data-efficient Rainbow scored {scores} there (published 9,600) | "
                          f"{len(der)} seeds; {updates:,} gradient steps |"),
            ("README.md", "interquartile mean (of the middle half) of human-normalised scores, "
                          "(score - random) / (human - random), of "
                          f"{short(middle, '.2f')} (published"),
            *((page, text) for page in ("studies/atari_100k/findings.md", "docs/atari.md")
              for text in (*others, f"DrQ(eps) scored {said}", f"it scored {later})",
                           f"{min(present):.1f} to {max(present):.1f} MiB, three of"))]  # fmt: skip


def newest_of_drq() -> list[Claim]:
    """What all transitions buy DrQ(eps) beside the newest 1 MiB."""
    table, row = results("atari_100k", "RoadRunner"), "DrQ(eps), epsilon by 25,000"
    rows = f"{row}, newest 1 MiB", row
    small, whole = (table[table["label"] == label].set_index("seed").sort_index() for label in rows)
    assert {*small["grad_steps"], *whole["grad_steps"]} == {98_401}
    assert (small["memory_bytes_peak"] <= 2**20).all()
    final, over, trained = "eval_return_mean", "return_over_run", "train_return_mean"
    assert [*small.index] == [*whole.index] == [*range(5)]
    assert (small[final] < whole[final]).all()
    assert (small[trained] < whole[trained]).all()
    half = [evaluated("atari_100k", label, 50_000) for label in rows]

    def each(column: str) -> list[str]:
        seeds = ([f"{value:,.0f}" for value in runs[column]] for runs in (small, whole))
        return [f"{', '.join(before)} and {last}" for *before, last in seeds]

    def below(ours: pd.Series, theirs: pd.Series, what: str = "") -> str:
        apart = paired(theirs, ours)
        return f"{apart.value:,.0f} below, {what}{interval(apart, ',.0f')}"

    scores, curves = each(final), each(over)
    ends = [small[final].mean(), whole[final].mean()]
    apart = below(small[final], whole[final])
    apart_long = below(small[final], whole[final], "95 % interval ")
    at_half, halves = below(*half), [runs.mean() for runs in half]
    more = (whole[final] - half[1]) - (small[final] - half[0])
    low, high = (f"{size / 2**20:.1f}" for size in whole["memory_bytes_peak"].agg(["min", "max"]))
    held = small["memory_entries"].agg(["min", "max"])
    said = (
        f"it scored {scores[0]} where all transitions scored {scores[1]} (seeds",
        f"it had {curves[0]} points a life where all had {curves[1]} "
        f"({below(small[over], whole[over])}: too wide to tell)",
        f"it had {small[trained].mean():,.0f} points a life and {whole[trained].mean():,.0f} with "
        f"all transitions ({below(small[trained], whole[trained])}), less in each of five",
        f"With {held['min']:,} to {held['max']:,} transitions in place",
        f"After 50,000 steps the newest 1 MiB had {halves[0]:,.0f} and all transitions "
        f"{halves[1]:,.0f} ({at_half}: no",
        f"lost {halves[0] - ends[0]:,.0f} and the other gained {ends[1] - halves[1]:,.0f}, "
        f"in each seed {more.min():,.0f} to {more.max():,.0f} more",
    )
    mean = [f"{end:,.0f}" for end in ends]
    return [
        ("README.md", f"scored {mean[0]} with the newest 1 MiB and {mean[1]} with all transitions "
                      f"in {low} to {high} MiB ({apart}); after 50,000 steps no "
                      f"difference was seen ({at_half}) | 5 seeds"),
        ("README.md", f"scored {mean[1]} with all transitions, in {low} to {high} MiB, and "
                      f"{mean[0]} with the newest 1 MiB ({apart_long})"),
        ("studies/atari_100k/findings.md", f"scored {mean[1]} with all transitions in {low} to "
         f"{high} MiB and {mean[0]} with the newest 1 MiB ({apart_long}), less"),
        ("docs/atari.md", f"ended at {mean[0]} with the newest 1 MiB of transitions and at "
                          f"{mean[1]} with all ({apart_long}), less in each of five seeds"),
        *((page, text) for page in ("studies/atari_100k/findings.md", "docs/atari.md")
          for text in said),
    ]  # fmt: skip


def middle_of_drq() -> list[Claim]:
    """The newest 4 MiB beside 1 MiB and all transitions."""
    table, row = results("atari_100k", "RoadRunner"), "DrQ(eps), epsilon by 25,000"
    sizes = f"{row}, newest 4 MiB", f"{row}, newest 1 MiB", row
    middle, small, whole = (
        table[table["label"] == label].set_index("seed").sort_index() for label in sizes
    )
    assert [*middle.index] == [*small.index] == [*whole.index] == [*range(5)]
    assert set(middle["grad_steps"]) == {98_401}
    assert (middle["memory_bytes_peak"] <= 2**22).all()
    score, trained = "eval_return_mean", "train_return_mean"

    def apart(column: str, what: str = "") -> tuple[str, str]:
        """How far above 1 MiB it is, and how far below all."""
        above, below = (
            paired(*pair)
            for pair in ((middle[column], small[column]), (whole[column], middle[column]))
        )
        return (
            f"{above.value:,.0f} above the newest 1 MiB ({what}{interval(above, ',.0f')})",
            f"{below.value:,.0f} below all transitions ({interval(below, ',.0f')})",
        )

    above, below = apart(score, "95 % interval ")
    lives = apart(trained)
    each = ", ".join(f"{value:,.0f}" for value in middle[score])
    held = middle["memory_entries"].agg(["min", "max"])
    half = evaluated("atari_100k", sizes[0], 50_000)
    pages = "studies/atari_100k/findings.md", "docs/atari.md"
    said = (
        f"it scored {middle[score].mean():,.0f} ({each}): {above}, {below}",
        f"4 MiB hold {held['min']:,} to {held['max']:,} transitions",
        f"After 50,000 steps it had {half.mean():,.0f}",
        f"{middle[trained].mean():,.0f} points a life, {lives[0]} and {lives[1]}",
    )
    return [
        ("README.md", f"it scored {middle[score].mean():,.0f}, {apart(score)[0]} and {below}"),
        *((page, text) for page in pages for text in said),
    ]


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
    said = f"(difference {apart.value:.1f}, {short(apart.low, '.1f')} to {high})"
    return [
        ("README.md", f"without a replay A3C ends at {ends.mean():.1f} on Acrobot, DQN with one at "
                      f"{asked.mean():.1f} {said}, in {sizes[0]} in place of {sizes[1]}; DQN "
                      f"without one, in {few:,.0f} gradient steps in place of {many:,.0f}, at "
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
    seconds = [of(table, row, "cpu_seconds").mean() for row in rows[:2]]
    (many,), (updates,), (few,) = (set(of(table, row, "grad_steps")) for row in rows)
    above, below = paired(long, asked), paired(asked, equal)
    size, theirs = (of(table, row, "memory_bytes_peak").mean() / 2**20 for row in rows[:2])
    return [
        ("README.md", "PQN, which has no replay but a rollout that is as large "
                      f"({size:.1f} and {theirs:.1f} MiB), ends its 500,000 steps at "
                      f"{long.mean():.1f} in {seconds[0]:.0f} CPU seconds, DQN with one after "
                      f"100,000 steps at {asked.mean():.1f} in {seconds[1]:.0f} (difference "
                      f"{above.value:.1f}, {interval(above)}); at equal env steps it is "
                      f"{below.value:.1f} below "
                      f"({short(below.low, '.1f').removeprefix('0')} to {below.high:.1f}) | "
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
    size, smaller = (f"{run['memory_bytes_peak'] / 2**20:.1f}" for run in (long, theirs))
    return [
        ("README.md", f"PQN wins Pong without a replay, its rollout of {size} MiB larger than "
                      f"DQN's compressed replay of {smaller}: its last 100 training games in "
                      f"1,500,000 steps had a mean of {means[0]}, in {minutes[0]} CPU minutes; "
                      f"DQN with one was at {means[1]} after 300,000, in {minutes[1]} | one seed; "
                      f"{updates}"),
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
    newest_of_drq,
    middle_of_drq,
    no_replay,
    breakout,
    pong,
    pqn_pong,
    cartpole_speed,
]
