"""The dictionary of NEC and MFEC as the memory of a run."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from rlmem.memories.base.pictures import Overlay, Picture, PictureContext
from rlmem.memories.gwr.embedding import RandomProjection
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.values.dnd import DND, DNDRule
from rlmem.memories.values.episodic import Episodic, EpisodicSettings, check_no_replay
from rlmem.memories.values.slabs import entries_an_action_within
from rlmem.registry import part
from rlmem.settings import beside, setting


@dataclass(kw_only=True)
class DNDSettings(EpisodicSettings):
    """NEC's dictionary; MFEC is a set of its values."""

    extends = "dnd"

    # Of the replay, which is there where a network learns.
    capacity: int = setting(
        at_least=1, at_most=10**9, divided=True, idle=beside(keys="random_projection")
    )
    keys: str = setting(choices=("network", "random_projection"))
    neighbours: int = setting(at_least=1, at_most=10**6)
    delta: float | None = setting(above=0)
    alpha: float | None = setting(at_least=0, at_most=1)


@part("memory", "dnd", settings=DNDSettings)
class Dictionary(Episodic):
    """A dictionary of an agent that asks."""

    colours: ClassVar = {"dnd": 6, "mfec": 11}  # in figures

    @classmethod
    def check(cls, settings: DNDSettings, run: Any) -> None:
        """What goes together.

        Raises:
            UserError: it does not.
        """
        super().check(settings, run)
        if not cls.learns(settings):
            why = f"no network learns where memory.keys={settings.keys}, so there is no replay"
            check_no_replay(settings, why)
        if settings.neighbours > settings.entries:
            raise UserError(
                f"memory.neighbours={settings.neighbours}: more than an action has entries; use "
                f"memory.entries={settings.neighbours} or more"
            )
        if settings.keys == "network" and settings.delta is None:
            raise UserError(
                "memory.delta=null: a mean gives a network nothing to learn from; use "
                "memory.delta=1e-3 or memory.keys=random_projection"
            )

    @classmethod
    def learns(cls, settings: DNDSettings) -> bool:
        return settings.keys == "network"

    @classmethod
    def values(cls, settings: DNDSettings, needs: Needs, budget: int | None) -> DND:
        spec, (key_size,) = needs.spec, needs.columns["key"][0]
        projection = None
        if settings.keys == "random_projection":
            if key_size % spec.stack:
                raise UserError(
                    f"agent.key_size={key_size}: each of an observation's {spec.stack} frames has "
                    f"its part of a random projection; use a multiple of {spec.stack}"
                )
            shape, scale = spec.observation_shape, spec.input_scale
            projection = RandomProjection(shape, key_size, needs.seed, scale, spec.stack)
        rule = DNDRule(settings.neighbours, settings.delta, settings.alpha)
        entries = settings.entries
        if budget is not None:
            left = budget - (projection.footprint() if projection else 0)
            most = entries_an_action_within(left, spec.num_actions, key_size, rule.neighbours)
            entries = min(entries, most)
            if entries < settings.neighbours:
                share = f"memory.share={settings.share} of it" if cls.learns(settings) else "it"
                raise UserError(
                    f"memory.budget={settings.budget}: {share} holds {max(0, entries)} entries of "
                    f"each of {spec.num_actions} actions, fewer than "
                    f"memory.neighbours={settings.neighbours}; use a larger budget, or "
                    "fewer neighbours"
                )
        return DND(spec.num_actions, key_size, entries, rule, projection)

    @staticmethod
    def pictures(memory: ReplayMemory, context: PictureContext) -> Iterable[Picture]:
        """See `rlmem.memories.base.pictures`."""
        from rlmem.memories.values.pictures import dictionary_pictures

        return dictionary_pictures(memory, context)

    @staticmethod
    def overlay(memory: ReplayMemory, context: PictureContext) -> Overlay | None:
        """See `rlmem.memories.base.pictures`."""
        from rlmem.memories.values.pictures_film import dictionary_overlay

        return dictionary_overlay(memory, context)
