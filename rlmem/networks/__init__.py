"""Networks: Q networks by name (`rlmem.networks.base`), actors and critics, heads.

Q networks take the observation as it is stored (uint8 frames, 0/1 planes, float vectors) and scale
it.
"""

from rlmem.networks.actor_critic import Actor, Critic
from rlmem.networks.base import QNetwork, QNetworkSettings, make_network, network_class

__all__ = ["Actor", "Critic", "QNetwork", "QNetworkSettings", "make_network", "network_class"]
