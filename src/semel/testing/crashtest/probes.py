"""What counts effects at the resource: the user's function, the sandbox provider's record, or nothing but calls."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semel.errors import Misuse, SemelError
from semel.model import EffectState, EffectView
from semel.testing.provider import Act

if TYPE_CHECKING:
    from semel.testing.crashtest.points import Boundary
    from semel.testing.crashtest.world import World

Action = tuple[str, str]  # the provider's manner and action


class Calls:
    """No probe: the calls that began, as the workers noted them. What came of them, nobody counts."""

    resource = False
    alone = False

    def begin(self, world: World) -> None:
        """Nothing."""

    def count(self, world: World, effects: list[EffectView]) -> dict[str, int]:
        """Calls that began, by key."""
        calls = Counter(note["key"] for note in world.room.notes() if note.get("what") == "began")
        return {effect.key: calls[effect.key] for effect in effects}

    def learn(self, world: World, boundaries: Sequence[Boundary]) -> None:
        """Nothing."""


@dataclass
class Probe:
    """The user's function: called as probe(effect=, key=, arguments=), sync or async; how many effects there are of the key.

    If it takes `store`, it is also given the URL of the run's store. alone: it says something else than 0 of a key that was
    never sent, so it does not count by key; then runs go one by one, and what was there before is subtracted.
    """

    fn: Callable[..., Any]
    resource: bool = True
    alone: bool = False
    _before: dict[int, dict[str, int]] = field(default_factory=dict)
    _calls: dict[str, list[Any]] = field(default_factory=dict)

    def begin(self, world: World) -> None:
        """What is there already."""
        if self.alone:
            self._before[id(world)] = {
                name: self._ask(name, f"sml_{secrets.token_hex(16)}", args[0], world.url) for name, args in self._calls.items()
            }

    def count(self, world: World, effects: list[EffectView]) -> dict[str, int]:
        """By key."""
        before = self._before.get(id(world), {})
        return {e.key: self._ask(e.name, e.key, e.args, world.url) - before.get(e.name, 0) for e in effects}

    def learn(self, world: World, boundaries: Sequence[Boundary]) -> None:
        """Whether it counts by key."""
        for at in boundaries:
            if at.what == "effect":
                self._calls.setdefault(at.name, []).append(at.args)
                self.alone |= self._ask(at.name, f"sml_{secrets.token_hex(16)}", at.args, world.url) != 0

    def _ask(self, effect: str, key: str, arguments: Any, store: str) -> int:
        name = getattr(self.fn, "__qualname__", repr(self.fn))
        given = {"effect": effect, "key": key, "arguments": arguments}
        if "store" in inspect.signature(self.fn).parameters:
            given["store"] = store
        try:
            found = self.fn(**given)
            if inspect.isawaitable(found):
                found = asyncio.run(_awaited(found))
        except Exception as error:
            raise SemelError(f"the probe {name} failed for {effect} ({key}): {type(error).__name__}: {error}") from error
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise Misuse(f"the probe {name} answered {found!r} for {effect}; it returns how many effects there are, as an int")
        return found


async def _awaited(found: Any) -> Any:
    return await found


@dataclass
class Sandbox:
    """The record of the sandbox provider. The dry run tells which actions each effect causes, and whether they bear its key."""

    resource: bool = True
    alone: bool = False
    actions: dict[str, set[Action]] = field(default_factory=lambda: defaultdict(set))
    _bearing: set[Action] = field(default_factory=set)

    def begin(self, world: World) -> None:
        """Its record is new."""

    def learn(self, world: World, boundaries: Sequence[Boundary]) -> None:
        """What the provider did while each effect was called."""
        assert world.provider is not None
        acts = world.provider.acts()
        spans = [note for note in world.room.notes() if note.get("what") == "ended"]
        by_key = {at.key: at.name for at in boundaries if at.what == "effect"}
        for act in acts:
            action = (act.manner, act.action)
            owner = next((key for key in by_key if bears(act, key)), None)
            if owner is not None:
                self._bearing.add(action)
            within = [s["key"] for s in spans if s["began"] <= act.at <= s["at"] and s["key"] in by_key]
            for key in [owner] if owner is not None else within:
                self.actions[by_key[key]].add(action)

    def count(self, world: World, effects: list[EffectView]) -> dict[str, int]:
        """By key, where acts bear it; else by action, for as many effects as there are of the name."""
        assert world.provider is not None
        acts = world.provider.acts()
        if not self.actions:  # the dry run itself: what bears the key
            return {e.key: n for e in effects if (n := sum(1 for act in acts if bears(act, e.key)))}
        ordered = sorted(effects, key=lambda e: (e.state is not EffectState.CONFIRMED, e.since))
        counts: dict[str, list[int]] = {}
        for action in sorted({action for actions in self.actions.values() for action in actions}):
            keys = [e.key for e in ordered if action in self.actions.get(e.name, ())]
            mine = [act for act in acts if (act.manner, act.action) == action]
            for key, n in self._shared_out(action, keys, mine).items():
                counts.setdefault(key, []).append(n)
        return {key: max(each) if max(each) > 1 else min(each) for key, each in counts.items()}

    def _shared_out(self, action: Action, keys: list[str], acts: list[Act]) -> dict[str, int]:
        if action in self._bearing:
            of_key = {key: sum(1 for act in acts if bears(act, key)) for key in keys}
            beside = len(acts) - sum(of_key.values())  # without any key of ours
        else:  # nothing tells whose they are: one for each
            of_key = {key: int(n < len(acts)) for n, key in enumerate(keys)}
            beside = len(acts) - sum(of_key.values())
        if keys:
            of_key[keys[0]] += beside
        return of_key


def bears(act: Act, key: str) -> bool:
    """Whether an act shows the key: as Idempotency-Key, as marker, or in its name."""
    return key in (act.key, act.marker) or (act.name is not None and key in act.name)
