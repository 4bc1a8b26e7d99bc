"""Parts from outside as options of the config groups, and our defaults for Hydra's own plugins.

A part that a user's module declares needs no yaml: its option is made of its settings' defaults. A
folder `conf/` beside the module is looked at too, so that a part may have one all the same.
"""

import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from rlmem import registry
from rlmem.config.schema import CONF_DIR
from rlmem.errors import UserError
from rlmem.registry import Part
from rlmem.settings import Settings, has_default

MANY = ("logger", "callbacks")  # groups of which several options can be chosen at once


def load(arguments: Sequence[str]) -> list[str]:
    """Import what `plugins=[...]` names and what installed packages declare, and store its options.

    Returns:
        The arguments, with the plugins' own folders of yamls among Hydra's.

    Raises:
        UserError: a module cannot be imported, or declares an option that there is.
    """
    named = [a.partition("=")[2] for a in arguments if a.lstrip("+").startswith("plugins=")]
    try:
        given = yaml.safe_load(named[-1]) if named else []
    except yaml.YAMLError:  # no value either by Hydra, which says where it ends
        given = []
    registry.load_plugins([given] if isinstance(given, str) else given)
    folders = []
    for part in registry.from_outside():
        file = getattr(sys.modules[part.module], "__file__", None)  # a notebook's cells have none
        folder = Path(file).parent / "conf" if file else None
        if folder and (folder / part.group).is_dir() and folder != CONF_DIR:  # options of its own
            folders.append(f"file://{folder}")
        if _has_yaml(part) and folder != CONF_DIR:
            raise UserError(
                f"plugins: {part.module} declares {part.group}={part.name}, which is an option of "
                "rlmem's; give yours another name"
            )
        own = folder and (folder / part.group / f"{part.name}.yaml").is_file()
        if not own and _is_group(part.group):
            ConfigStore.instance().store(
                group=part.group, name=part.name, node=option(part), provider=part.module
            )
    if not folders:
        return list(arguments)
    # Beside the other overrides: argparse takes them in one row, and options have values.
    given = (k for k, a in enumerate(arguments) if a[:1] == "~" or (a[:1] != "-" and "=" in a))
    place = next(given, len(arguments))
    searched = f"hydra.searchpath=[{','.join(dict.fromkeys(folders))}]"
    return [*arguments[:place], searched, *arguments[place:]]


def _is_group(group: str) -> bool:
    """Whether the command line chooses among a group's parts; a key chooses among the others'."""
    return group in MANY or (CONF_DIR / group).is_dir()


def _has_yaml(part: Part) -> bool:
    return (CONF_DIR / part.group / f"{part.name}.yaml").is_file()


def option(part: Part) -> dict[str, Any]:
    """The content of a part's option, as a yaml of it would have it."""
    settings = part.settings or Settings
    known = {f.name: f for f in fields(settings)}
    keys = {name: _default(f) for name, f in known.items() if f.init and has_default(f)}
    many = part.group in MANY
    # A part below this one: of a group that may be called otherwise than the key that holds it.
    within = f"{part.name}." if many else ""
    chosen = [
        {f"/{f.metadata['group']}@{within}{name}": f.metadata["option"]}
        for name, f in known.items()
        if f.metadata.get("option")
    ]
    if many:
        return {"defaults": [*chosen, "_self_"], part.name: keys}
    named = {"name": part.name} if "name" in known else {}
    extends = [settings.extends] if settings.extends else []
    return {"defaults": [*extends, *chosen, "_self_"], **named, "kind": part.name, **keys}


def _default(f: Field) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


def set_defaults() -> None:
    """Merge conf/hydra/plugins/<group>/<name>.yaml into hydra/<group>=<name>, where installed.

    Hydra takes no yaml that is named as a plugin's own configuration, so they are merged into that.
    """
    Plugins.instance()  # imports the plugins, which then store their configurations
    store = ConfigStore.instance()
    for file in sorted((CONF_DIR / "hydra" / "plugins").glob("*/*.yaml")):
        group = f"hydra/{file.parent.name}"
        if file.name in store.list(group):
            node = store.load(f"{group}/{file.name}").node
            node = OmegaConf.merge(node, OmegaConf.load(file))
            store.store(group=group, name=file.stem, node=node, provider="rlmem")
