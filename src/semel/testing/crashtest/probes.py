"""What counts effects at the resource: the user's function, the sandbox provider's record, or nothing but calls."""

from __future__ import annotations

import asyncio
import inspect
import json
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
Call = tuple[str, str]  # an effect's name, and its arguments as JSON


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

    def unable(self, name: str, sandbox: str) -> str:
        """Why an effect that happened is not counted, and what to do."""
        return f"nobody counts {name}"


@dataclass
class Probe:
    """The user's function: called as probe(effect=, key=, arguments=), sync or async; how many effects there are of the key.

    If it takes `store`, it is also given the URL of the run's store. Of some effects it may say something else than 0 for a key
    that was never sent: those it does not count by key. Then runs go one by one (`alone`), what was there before of the same
    arguments is subtracted, and keys of the same arguments share what is left.
    """

    fn: Callable[..., Any]
    resource: bool = True
    _keyless: set[str] = field(default_factory=set)  # effects that it does not count by key
    _known: dict[Call, Any] = field(default_factory=dict)  # the dry run's calls of all effects, and their arguments
    _before: dict[int, dict[Call, int]] = field(default_factory=dict)  # by world

    @property
    def alone(self) -> bool:
        """Whether runs must go one by one."""
        return bool(self._keyless)

    def begin(self, world: World) -> None:
        """What is there already."""
        if self.alone:
            known = {call: args for call, args in self._known.items() if call[0] in self._keyless}
            self._before[id(world)] = {call: self._ask(call[0], _never_sent(), args, world.url) for call, args in known.items()}

    def count(self, world: World, effects: list[EffectView]) -> dict[str, int]:
        """By key; without those of which it is not known what was there before. Raises `Misuse` if there is less than before."""
        counts = {e.key: self._ask(e.name, e.key, e.args, world.url) for e in effects if e.name not in self._keyless}
        before = self._before.get(id(world))
        shared: dict[Call, list[EffectView]] = {}
        for effect in in_order(effects):
            if effect.name in self._keyless:
                shared.setdefault(call_of(effect.name, effect.args), []).append(effect)
        for call, same in shared.items():
            if before is None or call in before:
                now = self._ask(call[0], same[0].key, same[0].args, world.url)
                counts.update(shared_out([e.key for e in same], self._more(call[0], now, before[call] if before else 0)))
        return counts

    def _more(self, effect: str, now: int, before: int) -> int:
        if now < before:
            raise Misuse(
                f"the probe {self._named()} found {before} of {effect} before a run, and {now} after it: someone else takes some "
                f"away, so they cannot be counted; count by key"
            )
        return now - before

    def learn(self, world: World, boundaries: Sequence[Boundary]) -> None:
        """Whether it counts by key."""
        for at in boundaries:
            if at.what == "effect":
                self._known[call_of(at.name, at.args)] = at.args
                if self._ask(at.name, _never_sent(), at.args, world.url) != 0:
                    self._keyless.add(at.name)

    def unable(self, name: str, sandbox: str) -> str:
        """Why an effect that happened is not counted, and what to do."""
        return (
            f"the probe {self._named()} does not count {name} by key, and {name} has other arguments in each run, so that nobody "
            f"knows how many there were before; count by key, or by what stays the same, and let the rest come from the task's "
            f"arguments"
        )

    def _named(self) -> str:
        return str(getattr(self.fn, "__qualname__", repr(self.fn)))

    def _ask(self, effect: str, key: str, arguments: Any, store: str) -> int:
        name = self._named()
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


def _never_sent() -> str:
    """A key of no effect."""
    return f"sml_{secrets.token_hex(16)}"


def call_of(name: str, arguments: Any) -> Call:
    """What tells calls apart where keys do not."""
    return name, json.dumps(arguments, sort_keys=True, default=repr)


def in_order(effects: Sequence[EffectView]) -> list[EffectView]:
    """Who has the first claim on what is there: what is confirmed, and then what is older."""
    return sorted(effects, key=lambda e: (e.state is not EffectState.CONFIRMED, e.since))


def shared_out(keys: Sequence[str], there: int) -> dict[str, int]:
    """Nothing tells whose they are: one for each, and what is left over for the first."""
    of_key = {key: int(n < there) for n, key in enumerate(keys)}
    if keys:
        of_key[keys[0]] += there - sum(of_key.values())
    return of_key


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
        ordered = in_order(effects)
        counts: dict[str, list[int]] = {}
        for action in sorted({action for actions in self.actions.values() for action in actions}):
            keys = [e.key for e in ordered if action in self.actions.get(e.name, ())]
            mine = [act for act in acts if (act.manner, act.action) == action]
            for key, n in self._shared_out(action, keys, mine).items():
                counts.setdefault(key, []).append(n)
        return {key: max(each) if max(each) > 1 else min(each) for key, each in counts.items()}

    def _shared_out(self, action: Action, keys: list[str], acts: list[Act]) -> dict[str, int]:
        if action not in self._bearing:
            return shared_out(keys, len(acts))
        of_key = {key: sum(1 for act in acts if bears(act, key)) for key in keys}
        if keys:
            of_key[keys[0]] += len(acts) - sum(of_key.values())  # without any key of ours
        return of_key

    def unable(self, name: str, sandbox: str) -> str:
        """Why an effect that happened is not counted, and what to do."""
        return (
            f"{name} happened, and never reached the sandbox provider at ${sandbox}: it went elsewhere, or nowhere. Let the app "
            f"take the provider's address from that variable, or name the one that it reads: --sandbox-env NAME. Effects that "
            f"cannot go there are counted by a probe: --probe MODULE:function --really"
        )


def bears(act: Act, key: str) -> bool:
    """Whether an act shows the key: as Idempotency-Key, as marker, or in its name."""
    return key in (act.key, act.marker) or (act.name is not None and key in act.name)
