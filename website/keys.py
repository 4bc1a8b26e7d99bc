"""The reference of configuration keys: a page a group, made of `conf/` and of what parts declare.

Nothing here knows a group, an option or a key by name, but for `env.recommended`, which the
defaults of other groups point to.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import Field
from typing import Any

from rlmem import registry
from rlmem.registry import Part
from website import conf_files, takes
from website.conf_files import Option

FOLDER = "docs/reference/keys"
NAMED_BY_OPTION = ("kind", "name", "suite")
_RECOMMENDED = "recommended."


def pages() -> dict[str, str]:
    """Path below the repository -> markdown of each page, in the order of the navigation."""
    found = {"run": _run_page()}
    for group in _in_order(conf_files.groups()):
        if group in conf_files.BUNDLES:
            continue
        if conf_files.options(group) != ["default"]:  # such a one stands on the run's page
            found[page_name(group)] = _group_page(group)
    for group in conf_files.BUNDLES:
        found[page_name(group)] = _bundle_page(group)
    found["evaluate"] = _evaluate_page()
    found["hydra"] = _hydra_page()
    found["parts"] = _parts_page()
    return {f"{FOLDER}/index.md": _index(found)} | {
        f"{FOLDER}/{name}.md": text for name, text in found.items()
    }


def page_of(path: str) -> str | None:
    """The page that stands for a file or folder of `conf/`, whose yamls a reader of the repository
    sees; None: none does."""
    if path == "conf":
        return f"{FOLDER}/index.md"
    name = path.removeprefix("conf/").removesuffix(".yaml")
    named = {"train": "run", "hydra/plugins": "hydra", "evaluate": "evaluate"}
    if not path.startswith("conf/") or name not in {*named, *conf_files.groups()}:
        return None
    return f"{FOLDER}/{named.get(name, page_name(name))}.md"


def page_name(group: str) -> str:
    """The file of a group's page, without its ending."""
    return group.replace("/", "_")


def _in_order(groups: Iterable[str]) -> list[str]:
    """Groups as train.yaml names them, each followed by the groups below it."""
    first = list(conf_files.entry("train").chosen)
    last = len(first)

    def place(group: str) -> tuple[int, str]:
        above = group.split("/")[0]
        return (first.index(above) if above in first else last), group

    return sorted(groups, key=place)


# Pages


def _index(found: dict[str, str]) -> str:
    lines = [
        "# Configuration keys",
        "",
        "    python train.py group=option group.key=value",
        "",
        "Made from `conf/` and from what each part declares, when this site is built: so these are "
        "the defaults, ranges and units of this version.",
        "",
        "| page | |",
        "|---|---|",
    ]
    for name, text in found.items():
        title, _, rest = text.partition("\n\n")
        first = re.split(r"[:;] `", rest.split("\n")[0])[0]
        lines.append(f"| [{title.removeprefix('# ')}]({name}.md) | {first} |")
    lines += [
        "",
        "How to read the tables:",
        "",
        "- **default**: what stands in the yaml. *must be given*: the key has none. *as* "
        "`trainer.max_env_steps`: it follows that key, whatever you set there. *by env*: it is "
        f"taken from the environment's [recommended values](env.md#{_recommended_anchor()}); the "
        "number shown is the one of most environments.",
        "- **takes**: type and range. Another value ends in one line that says what would work. "
        "`null` means none; what that does stands under *meaning*.",
        "- **&dagger;** behind a key: a run may be resumed with another value of it. With another "
        "value of any other key it is refused.",
        "- Steps are named by their unit: *env steps* are the agent's decisions over all parallel "
        "environments, *updates* are gradient steps.",
        "- `kind`, `name` and `suite` in a yaml say which part an option builds and what it is "
        "called in records. They come with the option, so they are left out of the tables.",
        "",
        "`python train.py <your overrides> --cfg job --resolve` prints every key with the value "
        "that a run would have.",
    ]
    return "\n".join(lines) + "\n"


def _run_page() -> str:
    entry = conf_files.entry("train")
    lines = ["# The run: length, seed, scoring, checkpoints, rows", ""]
    lines += ["Keys that belong to no part: `python train.py seed=1 log.every=500`.", ""]
    alone = [name for name in entry.keys if "." not in name]
    lines += _table("", entry, alone, takes.of_run)
    for section in dict.fromkeys(name.split(".")[0] for name in entry.keys if "." in name):
        names = [name for name in entry.keys if name.startswith(f"{section}.")]
        said = takes.field_of(takes.TrainSettings, section)
        lines += ["", f"## {section}", "", inspect.getdoc(said[0]) or "" if said else "", ""]
        lines += _table("", entry, names, takes.of_run)
    for group in conf_files.groups():
        if conf_files.options(group) == ["default"]:
            option = conf_files.option(group, "default")
            lines += ["", f"## {group}", "", _linked(option.about), ""]
            lines += _table(group, option, list(option.keys))
    return "\n".join(lines) + "\n"


def _group_page(group: str) -> str:
    """A section for each part, with all keys of the option that its others begin with."""
    default = conf_files.entry("train").chosen.get(group)
    by_part: dict[str, list[Option]] = {}
    for name in conf_files.options(group):
        option = conf_files.option(group, name)
        part = takes.part_of(group, _values(option))
        by_part.setdefault(part.name if part else _shape(group, option), []).append(option)
    lines = [f"# {group}", "", _choice(group, default), ""]
    sections = {
        tuple(o.name for o in k): _part_section(group, k, default) for k in by_part.values()
    }
    if len(sections) > 1:
        lines += ["| option | what it is |", "|---|---|"]
        at = {name: _anchor(text[0]) for names, text in sections.items() for name in names}
        for name in conf_files.options(group):
            lines.append(f"| [`{group}={name}`](#{at[name]}) | {_first(group, name)} |")
    for text in sections.values():
        lines += ["", *text]
    if any(n.startswith(_RECOMMENDED) for n in _common(group)):
        lines += ["", *_recommended(group)]
    return "\n".join(lines) + "\n"


def _anchor(heading: str) -> str:
    """The anchor of a heading, as the site makes it."""
    kept = re.sub(r"[^\w\s-]", "", heading.lstrip("# ")).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def _choice(group: str, default: str | None) -> str:
    if default:
        return f"`{group}=<option>`; without it `{group}={default}`."
    above, _, below = group.rpartition("/")
    owners = {}
    for name in conf_files.options(above) if above else []:
        if chosen := conf_files.option(above, name).chosen.get(below):
            owners.setdefault(chosen, []).append(f"`{name}`")
    said = [f"`{chosen}` for {', '.join(names)}" for chosen, names in owners.items()]
    return f"`{group}=<option>`; without it what the `{above}` brings: {'; '.join(said)}."


def _first(group: str, name: str) -> str:
    option = conf_files.option(group, name)
    if option.about:
        return _cell(re.split(r"(?<=\.)\s+(?=[A-Z])", option.about)[0])
    base = conf_files.option(group, option.base) if option.base else None
    changed = _changes(group, option, base)
    return f"`{option.base}` with {changed}" if option.base else changed


def _shape(group: str, option: Option) -> str:
    """Options without a part stand together where they have the same keys."""
    return " ".join(sorted(option.keys)) if takes.settings_of(group, {}) else option.name


def _part_section(group: str, known: list[Option], default: str | None) -> list[str]:
    names = [option.name for option in known]
    roots = [option for option in known if option.base not in names]
    root = next((option for option in roots if option.name == default), roots[0])
    title = root.name if len(known) == 1 else f"{root.name} and variants"
    lines = [f"## {title}", "", _linked(root.about), ""]
    for line in _brings(group, root):
        lines += [line, ""]
    keys = [n for n in root.keys if n not in NAMED_BY_OPTION and not n.startswith(_RECOMMENDED)]
    part = takes.part_of(group, _values(root))
    if part and root.keys.get(part.name) and not root.keys[part.name].value:
        keys.remove(part.name)  # `csv: {}`: a logger without keys
    if keys:
        lines += _table(group, root, keys)
    else:
        lines += ["It has no keys."]
    others = [option for option in known if option is not root]
    if others:
        lines += ["", f"| option | what is different from `{root.name}` |", "|---|---|"]
        lines += [f"| `{option.name}` | {_changes(group, option, root)} |" for option in others]
    return lines


def _brings(group: str, option: Option) -> Iterator[str]:
    if option.chosen:
        pairs = [_group_link(f"{group}/{g}", o) for g, o in option.chosen.items()]
        yield f"With {', '.join(pairs)}."
    if option.overridden or option.elsewhere:
        pairs = [_group_link(g, o) for g, o in option.overridden.items()]
        pairs += [f"`{key.name}={_plain(key.value)}`" for key in option.elsewhere.values()]
        yield f"It brings {', '.join(pairs)}, unless you choose others."


def _changes(group: str, option: Option, root: Option | None) -> str:
    """What sets an option apart from the one that it begins with."""
    before, chosen = (root.keys, root.chosen) if root else ({}, {})
    said = [
        f"`{group.replace('/', '.')}.{name}={_plain(key.value)}`"
        for name, key in option.keys.items()
        if name not in NAMED_BY_OPTION
        and not name.startswith(_RECOMMENDED)
        and (name not in before or before[name].value != key.value)
    ]
    said += [f"`{group}/{g}={o}`" for g, o in option.chosen.items() if chosen.get(g) != o]
    if any(name.startswith(_RECOMMENDED) for name in option.own):
        said.append(f"[recommended values](#{_recommended_anchor()}) of its own")
    return ", ".join(said) or "nothing but its name"


def _recommended_anchor() -> str:
    return "recommended-values"


def _common(group: str) -> dict[str, Any]:
    file = conf_files.CONF_DIR / f"{group}.yaml"
    return conf_files.entry(group).keys if file.is_file() else {}


def _of_the_agent(name: str) -> str:
    """What an agent's own key says of the value that is its default: that of `epsilon.start` for
    `recommended.rainbow.epsilon_start`."""
    agent, _, key = name.removeprefix(_RECOMMENDED).partition(".")
    if agent not in conf_files.options("agent"):
        return ""
    option = conf_files.option("agent", agent)
    found = (option.meaning(own) for own in (key, key.replace("_", ".", 1)) if own in option.keys)
    return next(found, "")


def _recommended(group: str) -> list[str]:
    """What the environments advise the other groups' defaults: values, and who has others."""
    lines = [f"## Recommended values {{ #{_recommended_anchor()} }}", ""]
    lines += ["Defaults of other keys that depend on the environment. A key that you set is not "]
    lines[-1] += "touched; to change one for all of an environment's agents, set it here."
    lines += ["", "| key | most | others | meaning |", "|---|---|---|---|"]
    own: dict[str, list[str]] = {}
    for name in conf_files.options(group):
        option = conf_files.option(group, name)
        for key in option.own:
            if key.startswith(_RECOMMENDED):
                own.setdefault(key, []).append(f"{name} `{_plain(option.keys[key].value)}`")
    common = conf_files.entry(group)
    for name in dict.fromkeys([*(n for n in common.keys if n.startswith(_RECOMMENDED)), *own]):
        value = _default(group, common.keys[name].value, name) if name in common.keys else ""
        same = [key for key in common.keys if key.split(".")[-1] == name.split(".")[-1]]
        meaning = next((common.meaning(key) for key in (name, *same) if key in common.keys), "")
        meaning = meaning or _of_the_agent(name)
        others = ", ".join(own.get(name, []))
        lines.append(f"| `{group}.{name}` | {value} | {others} | {_cell(meaning)} |")
    return lines


def _bundle_page(group: str) -> str:
    what = {"experiment": "Published settings", "hparams_search": "Searches"}[group]
    lines = [f"# {group}", "", f"{what}: `{group}=<option>` sets the keys below; others that you "]
    lines[-1] += "give beside it come after."
    for name in conf_files.options(group):
        option = conf_files.option(group, name)
        lines += ["", f"## {name}", "", _linked(option.about), ""]
        if option.overridden:
            pairs = [_group_link(g, o) for g, o in option.overridden.items()]
            lines += [f"Chooses {', '.join(pairs)}.", ""]
        if option.keys:
            lines += ["| key | value | meaning |", "|---|---|---|"]
        for key in option.keys.values():
            said = _cell(option.meaning(key.name))
            lines.append(f"| `{key.name}` | {_default('', key.value, key.name)} | {said} |")
    return "\n".join(lines) + "\n"


def _evaluate_page() -> str:
    entry = conf_files.entry("evaluate")
    lines = ["# evaluate.py", ""]
    lines += ["Scores, pictures and comparisons: `python evaluate.py key=value`.", ""]
    lines += ["    python evaluate.py run=outputs/pong/per/... episodes=20"]
    lines += ["    python evaluate.py mode=report sweep=multirun/mine", ""]
    lines += _table("", entry, list(entry.keys), takes.of_evaluation)
    return "\n".join(lines) + "\n"


def _hydra_page() -> str:
    lines = ["# Launchers and searches", ""]
    lines += ["Our defaults for Hydra's own plugins (extra `[sweep]`): "]
    lines[-1] += "`python train.py -m hydra/launcher=joblib hydra.launcher.n_jobs=2 ...`."
    for chosen, option in conf_files.plugins().items():
        lines += ["", f"## {chosen}", "", _linked(option.about), ""]
        lines += ["| key | default | meaning |", "|---|---|---|"]
        at = chosen.partition("=")[0].replace("/", ".")
        for key in option.keys.values():
            said = _cell(option.meaning(key.name))
            lines.append(f"| `{at}.{key.name}` | {_default('', key.value, key.name)} | {said} |")
    return "\n".join(lines) + "\n"


def _parts_page() -> str:
    """Parts by group: what each is, in the words of its own docstring."""
    lines = ["# Parts", "", "What can be built, by group, in the words of each part's docstring. "]
    lines[-1] += "Several options may build one part, and some parts are named by a key alone "
    lines[-1] += "(`agent.network.kind`). Your own: [extending](../../extending.md)."
    for group in registry.groups():
        own = [p for p in registry.parts(group).values() if p.module.startswith("rlmem.")]
        if own:
            lines += ["", f"## {group}", "", "| part | | module |", "|---|---|---|"]
            lines += [f"| `{p.name}` | {_cell(_what(p))} | `{p.module}` |" for p in own]
    return "\n".join(lines) + "\n"


def _what(part: Part) -> str:
    """The first sentence of a part's docstring, or of its settings'."""
    said = inspect.getdoc(part.cls) or inspect.getdoc(part.settings) or ""
    return " ".join(said.split("\n\n")[0].split())


# Tables


def _table(group: str, option: Option, names: list[str], find: Any = None) -> list[str]:
    settings = takes.settings_of(group, _values(option)) if group else None
    part = takes.part_of(group, _values(option)) if group else None
    lines = ["| key | default | takes | meaning |", "|---|---|---|---|"]
    for name in names:
        value = option.keys[name].value
        own = name.removeprefix(f"{part.name}.") if part else name
        found: tuple[Any, Field] | None = find(name) if find else takes.field_of(settings, own)
        full = f"{group.replace('/', '.')}.{name}" if group else name
        meaning = option.meaning(name) or (found[1].metadata.get("help", "") if found else "")
        free = " &dagger;" if found and found[1].metadata.get("free") else ""
        taken = _cell(takes.takes(found, value))
        default = _default(group, value, name)
        lines.append(f"| `{full}`{free} | {default} | {taken} | {_cell(meaning)} |")
    return lines


def _values(option: Option) -> dict[str, Any]:
    return {name: key.value for name, key in option.keys.items()}


def _default(group: str, value: Any, key: str = "") -> str:
    """A default as the yaml has it, with what its interpolation says.

    Args:
        key: whose default it is, below its group.
    """
    if value == "???":
        return "*must be given*"
    text = _plain(value)
    if whole := re.fullmatch(r"\$\{(\.?[\w.]+)\}", text):
        return _following(_absolute(group, key, whole[1]))
    if picked := re.fullmatch(r"\$\{oc\.select:([\w.]+),(.*)\}", text):
        if picked[1].startswith(f"env.{_RECOMMENDED}"):
            other = _default(group, picked[2], key)
            return other if "by env" in other else f"{other}, {_by_env()}"
        return f"*as* `{picked[1]}`, else {_default(group, picked[2], key)}"
    return f"`{text}`"


def _absolute(group: str, key: str, path: str) -> str:
    """A path that may be relative to what a key stands in."""
    if not path.startswith("."):
        return path
    above = [*group.split("/"), *key.split(".")[:-1]]
    return ".".join(part for part in [*above, path.removeprefix(".")] if part)


def _following(path: str) -> str:
    """A default that is another key's value."""
    if not path.startswith(f"env.{_RECOMMENDED}"):
        return f"*as* `{path}`"
    known = conf_files.entry("env").keys
    name = path.removeprefix("env.")
    above, _, last = name.rpartition(".")
    if name not in known and above in known:  # `rainbow: ${.dqn}`
        pointed = re.fullmatch(r"\$\{(\.[\w.]+)\}", str(known[above].value))
        name = f"{_absolute('', above, pointed[1])}.{last}" if pointed else name
    value = f"`{_plain(known[name].value)}`, " if name in known else ""
    return f"{value}{_by_env()}"


def _by_env() -> str:
    return f"[by env](env.md#{_recommended_anchor()})"


def _plain(value: Any) -> str:
    """A value as one types it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value and ("." in short or "e" in short) else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_plain(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_plain(item)}' for key, item in value.items())}}}"
    return str(value) if value != "" else '""'


def _group_link(group: str, option: str) -> str:
    if group not in conf_files.groups() or conf_files.options(group) == ["default"]:
        return f"`{group}={option}`"
    return f"[`{group}={option}`]({page_name(group)}.md)"


def _cell(text: str) -> str:
    """Text within a table, with links to pages that it names."""
    return _linked(text).replace("|", "\\|").replace("\n", " ")


def _linked(text: str) -> str:
    """A yaml's comment as markdown: `docs/gwr.md` is a link, brackets are brackets."""
    text = text.replace("<", "&lt;").replace("[", "\\[")
    return re.sub(r"\bdocs/(\w+)\.md", r"[docs/\1.md](../../\1.md)", text)
