"""What memories are worth on Road Runner, reckoned again from the result files."""

from collections.abc import Callable

from scipy.stats import fisher_exact

from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.compare.thresholds import threshold_effects, threshold_grids
from rlmem.analysis.read.record import read_record
from rlmem.units import readable_bytes
from tests.claims.files import ROOT, Claim, interval, of, paired, results, short


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
                          f"{sizes['dense']} (by an earlier packing; today's takes less) | the "
                          "same return, one seed")]  # fmt: skip


def road_runner_memory() -> list[Claim]:
    table = results("road_runner_memory")
    rows = (
        *("FIFO 1 MiB", "uniform", "none", "CER", "FIFO 2 MiB", "FIFO 4 MiB"),
        *("GWR, moving averages", "GWR, a_T .9, h_T .45", "GWR, a_T .68, h_T .85"),
        *("GWR, a_T .68, h_T .45", "GWR, a_T .9, h_T .85", "PER", "MeDQN(R)"),
    )
    finals = [[f"{score:,.0f}" for score in of(table, row, "eval_return_mean")] for row in rows]
    assert [len(scores) for scores in finals] == [5] * len(rows)
    assert set(table["env_steps"]) == {50_000}
    climbed = table[table["eval_return_mean"] >= 1_950]
    stayed = table[table["eval_return_mean"] <= 1_385]
    assert (len(climbed), len(stayed)) == (37, 26)
    upward = [len(climbed[climbed["label"] == row]) for row in rows]
    assert upward == [5, 3, 0, 5, 4, 5, 3, 4, 2, 1, 2, 3, 0]
    up = dict(zip(rows, upward, strict=True))
    lists, maps, whole_replays = (
        (sum(up[row] for row in some), 5 * len(some))
        for some in (
            [row for row in rows if row.startswith("FIFO")],
            [row for row in rows if row.startswith("GWR, a_T")],
            ["uniform", "PER", "CER"],
        )
    )
    chances = [
        fisher_exact([[n, of_all - n] for n, of_all in (lists, others)]).pvalue
        for others in (maps, whole_replays, (up["MeDQN(R)"], 5))
    ]
    assert chances[2] < 0.001
    held_to = of(table, "MeDQN(R)", "return_over_run")
    beside = [paired(of(table, row, "return_over_run"), held_to) for row in ("uniform", rows[0])]
    medqn = [f"{each.value:.0f} below {{}} ({interval(each, '.0f')})" for each in beside]
    sizes = of(table, "uniform", "memory_bytes_peak")
    held = readable_bytes(sizes.min()).removesuffix(" MiB"), readable_bytes(sizes.max())
    (updates,) = set(of(table, "uniform", "grad_steps"))
    newest, whole = (of(table, row, "return_over_run") for row in rows[:2])
    level = paired(newest, whole)
    more = of(table, "FIFO 4 MiB", "return_over_run")
    above = paired(more, whole)
    findings = "studies/road_runner_memory/findings.md"
    averages = of(table, "GWR, moving averages", "return_over_run")
    from_all, from_exemplars = (
        f"{each.value:.0f} above, {interval(each, '.0f')}"
        for each in (
            paired(averages, of(table, row, "return_over_run"))
            for row in ("uniform", "GWR, a_T .9, h_T .85")
        )
    )
    return [
        ("README.md", "no difference was seen between the newest 1 MiB and all transitions in "
                      f"{held[0]} to {held[1]}: {newest.mean():.0f} and {whole.mean():.0f} points "
                      "a life over the run "
                      f"(difference {level.value:.0f}, {interval(level, '.0f')}), nor between "
                      f"the newest 4 MiB and all: {more.mean():.0f} ({above.value:.0f}, "
                      f"{interval(above, '.0f')}) | 5 seeds; "
                      f"{updates:,} gradient steps"),
        *((findings, f"| {', '.join(scores)} |") for scores in finals),
        (findings, f"{lists[0]} of {lists[1]} runs with the newest 1 to 4 MiB, {maps[0]} of "
                   f"{maps[1]} with maps of exemplars (Fisher's exact test: p = "
                   f"{short(chances[0], '.3f')}), {whole_replays[0]} of {whole_replays[1]} with "
                   "all transitions"),
        (findings, f"no difference was seen: {held_to.mean():.0f}, "
                   f"{medqn[0].format('all transitions')}, {medqn[1].format('the newest 1 MiB')}."),
        (findings, f"no difference was seen from all transitions ({averages.mean():.0f}, "
                   f"{from_all}) or from exemplars at the same thresholds ({from_exemplars})"),
        (findings, f"None of its five runs climbed; of those with the newest 1 to 4 MiB {lists[0]} "
                   f"of {lists[1]} did (Fisher's exact test: p < .001)"),
        (findings, f"all transitions chance is enough (p = {short(chances[1], '.2f')})"),
    ]  # fmt: skip


def bytes_of_maps() -> list[Claim]:
    """How many times the bytes of all transitions of the same seed a map takes."""
    table = results("road_runner_memory")
    whole = of(table, "uniform", "memory_bytes_peak")

    def times(part: str, form: str) -> str:
        rows = sorted({label for label in table["label"] if part in label})
        every = [each for row in rows for each in of(table, row, "memory_bytes_peak") / whole]
        fewer = sum(each < 1 for each in every)
        said = f"{min(every):{form}} to {max(every):{form}} times".removeprefix("0")
        return said + (f" (fewer in {fewer} of {len(every)} runs)" if fewer else "")

    return [
        ("studies/road_runner_memory/findings.md", said)
        for said in (
            f"exemplars at a_T .9 take {times('GWR, a_T .9', '.1f')} the bytes of all transitions "
            f"of the same seed, at a_T .68 {times('GWR, a_T .68', '.1f')}",
            f"Moving averages take {times('moving averages', '.0f')};",
        )
    ]


def thresholds_of_road_runner() -> list[Claim]:
    """What a step from the lowest to the highest of a threshold does, by the page's own fit."""
    settings = make_settings(read_record(ROOT / "studies/road_runner_memory/runs.npz"))
    (grid,) = [g for label, g in threshold_grids(settings).items() if "auto" in label]
    assert [len(setting.finished) for setting in grid] == [5] * 4
    ((name, every),) = [
        (found.part, found.effects) for found in threshold_effects("Road Runner", "gwr", grid)
    ]
    assert name == "all runs"
    effects = {(each.measure.name, each.term): each for each in every}
    assert effects["entries", "a_T"].span == (0.68, 0.9)
    shares = [effects[kind, "a_T"].percent for kind in ("entries", "bytes")]
    steps = [effects["return over the run", term].step for term in ("a_T", "h_T")]
    nodes, sizes, first, second = [*shares, *steps]
    assert nodes
    assert sizes
    assert first
    assert second
    assert not any(effects["return", term].shown for term in ("a_T", "h_T", "a_T x h_T"))
    assert first.low is not None
    assert first.high is not None
    assert second.low is not None
    assert second.high is not None
    return [
        ("README.md",
         f".9 in place of .68 stores {nodes.value:.0f} % more nodes ({interval(nodes, '.0f')}) in "
         f"{sizes.value:.0f} % more bytes ({interval(sizes, '.0f')}). No effect on the return was "
         f"seen, of it (over the run {-first.value:.0f} lower, {-first.low:.0f} lower to "
         f"{first.high:.0f} higher) or of the habituation threshold (.85 in place of .45: "
         f"{second.value:.0f} higher, {-second.low:.0f} lower to {second.high:.0f} higher)"),
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
                      f"{newest.mean():.0f} and {whole.mean():.0f} points a life over the run "
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


SOURCES: list[Callable[[], list[Claim]]] = [
    road_runner,
    road_runner_memory,
    bytes_of_maps,
    thresholds_of_road_runner,
    weaker_learner,
]
