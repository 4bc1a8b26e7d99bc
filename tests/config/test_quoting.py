"""What Hydra does not read as it stands is quoted, if it is a path or a text."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from rlmem.config.quoting import quote_paths

READ = {
    "run=multirun/x/seed=1": "multirun/x/seed=1",
    "resume=/home/josé/run": "/home/josé/run",
    "sweep=/tmp/run (2)/x": "/tmp/run (2)/x",
    "run=/tmp/a&b#c!": "/tmp/a&b#c!",
    "run=/tmp/O'Brien/x": "/tmp/O'Brien/x",
    'run=/tmp/a"b/x': '/tmp/a"b/x',
    "label=José": "José",
    "runs=[/tmp/é/a,/tmp/b=1]": ["/tmp/é/a", "/tmp/b=1"],
    "hydra.run.dir=/tmp/é/${memory.name}": "/tmp/é/${memory.name}",
}
AS_THEY_ARE = [
    "seed=1",
    "label=a b",
    "agent.support=[-10,10]",
    "seed=range(3)",
    "memory=uniform,per",
]
AS_THEY_ARE += ["x=/p/${oc.env:HOME,x}/é", "label=shuffle(choice(a=1,b=2))", f"a=[{'1' * 5000},é]"]
AS_THEY_ARE += ["seed=range(3", "a=[1,2", "memory==per", "label='abc", "+env.kwargs={a: é}", "~x"]


@pytest.mark.parametrize(("given", "value"), READ.items())
def test_a_path_is_read_as_it_stands(given: str, value: str | list[str]) -> None:
    assert OverridesParser.create().parse_override(quote_paths(given)).value() == value


def test_the_arguments_of_a_choice_are_paths_of_their_own() -> None:
    quoted = quote_paths("resume=choice(multirun/x/seed=1,multirun/x/seed=2)")
    assert quoted == 'resume=choice("multirun/x/seed=1","multirun/x/seed=2")'


@pytest.mark.parametrize("given", AS_THEY_ARE)
def test_all_else_is_hydras_to_read_or_to_refuse(given: str) -> None:
    assert quote_paths(given) == given


def test_nesting_that_the_parser_does_not_bear_ends_in_no_traceback() -> None:
    quote_paths("label=" + "[" * 900 + "é" + "]" * 900)
