"""Our defaults for Hydra's launchers and sweepers, from conf/hydra/plugins/.

Hydra takes no yaml that is named as a plugin's own configuration, so they are merged into that.
"""

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from rlmem.config.schema import CONF_DIR


def set_defaults() -> None:
    """Merge conf/hydra/plugins/<group>/<name>.yaml into hydra/<group>=<name>, where installed."""
    Plugins.instance()  # imports the plugins, which then store their configurations
    store = ConfigStore.instance()
    for file in sorted((CONF_DIR / "hydra" / "plugins").glob("*/*.yaml")):
        group = f"hydra/{file.parent.name}"
        if file.name in store.list(group):
            node = store.load(f"{group}/{file.name}").node
            node = OmegaConf.merge(node, OmegaConf.load(file))
            store.store(group=group, name=file.stem, node=node, provider="rlmem")
