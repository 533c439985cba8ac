"""Identity: as whom, and where, a task acts, and whether what is observed there is that. Pure; `effects` and `tasks` ask.

What is bound to a task and what is observed must be the same names with the same values: what is not reported is not
proved, and what is not bound proves nothing. What was sent under an observed identity is sent again, and looked up, only
under that one: a lookup in another account would find nothing, and be believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from semel.machine import events as j
from semel.machine.commands import PENDING, Intend, Names, Observed, Settle
from semel.machine.task_commands import Bind, Mismatch
from semel.model import Code, Refusal

if TYPE_CHECKING:
    from semel.machine.effect_state import Effect


def names(identity: Mapping[str, str]) -> Names:
    """An identity as pairs, in order of the names."""
    return tuple(sorted(identity.items())) if identity else ()


def words(identity: Names) -> str:
    """An identity as one writes it."""
    return ", ".join(f"{name}={value!r}" for name, value in identity)


def sent_as(effect: Effect | None) -> Names:
    """The identity that was observed for what is open of the effect."""
    return tuple(sorted({pair for s in effect.open for pair in s.observed})) if effect is not None else ()


def mismatch(name: str, bound: Names, observed: Observed | None, before: Names = ()) -> str:
    """What keeps effect `name` from being sent, or looked up, under what is observed; "" if nothing does.

    observed: None: the code does not look. before: the identity under which it was sent, if its outcome is unknown.
    """
    if observed is None:
        said = f"{name} was sent as {words(before)}, and the code observes no identity any more; declare identity= again"
        return said if before else ""
    if observed.identity is None:
        return f"the identity for {name} could not be observed: {observed.why}"
    seen, held = dict(observed.identity), dict(bound)
    if not held:
        asks = ", ".join(f"{one}=..." for one in seen) or "account=..."
        found = words(observed.identity) or "nothing"
        return f"{name} observes {found}, and nothing is bound to its task; write semel.bind({asks}) before it"
    differ = [f"{one} is bound to {value!r}, and {_seen(seen, one)}" for one, value in bound if seen.get(one) != value]
    differ += [f"{one} is observed as {value!r}, and is not bound" for one, value in observed.identity if one not in held]
    differ += [
        f"{one} was {value!r} when it was sent, and {_seen(seen, one)}"
        for one, value in before
        if seen.get(one) != value and (one, value) not in bound
    ]
    return f"another identity for {name}: {'; '.join(differ)}" if differ else ""


def _seen(seen: Mapping[str, str], name: str) -> str:
    return f"{seen[name]!r} is observed" if name in seen else "it was not observed"


def refused(c: Intend | Settle, effect: Effect | None, bound: Names) -> Refusal | None:
    """What keeps a call from being sent, or a lookup from being believed. What is still to be observed is not judged here."""
    asks = c.again if isinstance(c, Intend) else c.how.startswith("lookup:")
    if (c.observed is None and not asks) or (c.observed == PENDING and isinstance(c, Intend)):
        return None
    name = effect.name if effect is not None else c.name if isinstance(c, Intend) else ""
    why = mismatch(name, bound, c.observed, sent_as(effect))
    return Refusal(Code.IDENTITY_MISMATCH, why) if why else None


def pending(c: Intend) -> Refusal | None:
    """All else permits it to be sent: it is time to look as whom."""
    if c.observed is None or c.observed != PENDING:
        return None
    return Refusal(Code.IDENTITY_MISMATCH, f"the identity for {c.name} is to be observed first")


# --- of a task ------------------------------------------------------------------------------------------------------


def differs(bound: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """What of `wanted` contradicts what is bound; "" if nothing does."""
    said = [
        f"{name} is bound to {bound[name]!r}, and this attempt binds {value!r}"
        for name, value in wanted.items()
        if bound.get(name, value) != value
    ]
    return f"another identity: {'; '.join(said)}" if said else ""


def decided(bound: Mapping[str, str], watched: Set[str], c: Bind | Mismatch) -> tuple[j.Happened, ...]:
    """Further names are bound, further effects (beyond those `watched`) are to observe them. What contradicts what is bound is
    on record, and the attempt may start nothing more."""
    if isinstance(c, Mismatch):
        return (j.Mismatched(c.why, c.key, c.name, None if c.observed is None else dict(c.observed)),)
    wanted = dict(c.identity)
    if why := differs(bound, wanted):
        return (j.Mismatched(why, observed=wanted),)
    new = {name: value for name, value in wanted.items() if name not in bound}
    more = tuple(sorted(set(c.watched) - watched))
    return (j.Bound(new, watched=more),) if new or more else ()


def rebound(
    bound: Mapping[str, str], differed: j.Mismatched | None, identity: Names, by: str
) -> tuple[j.Happened, ...] | Refusal:
    """A person gives names other values, in the change that lets the task go on: those that are bound, and those that the last
    attempt observed beside them. The handler, which would bind these, does not run before an unknown is settled."""
    seen = (differed.observed if differed is not None else None) or {}
    for name, _ in identity:
        if name not in bound and name not in seen:
            there, looked = words(names(bound)) or "nothing", words(names(seen)) or "nothing"
            return Refusal(
                Code.STALE_VIEW, f"{name!r} is not bound to the task (bound is {there}), nor was it observed (that was {looked})"
            )
    new = {name: value for name, value in identity if bound.get(name) != value}
    return (j.Bound(new, by),) if new else ()
