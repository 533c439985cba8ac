"""What can happen next in a world, by name: the steps of its workers, the fate of their calls, time, people, and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from procs_world import TENANT, TTL, Actor, EffectCall, Flight, Life, Look, LookupCall, World

from semel.engine import review
from semel.engine.requests import Call, Raised, Returned, Sleep, TimedOut
from semel.errors import Refused
from semel.machine import tasks as t
from semel.model import Confirmed, Delivery, EffectState, NotFound

STEP = TTL / 4
DONE, NOT_DONE = Confirmed("done"), NotFound()


class Move(NamedTuple):
    """One choice. honest: no fault, and no late consequence of one: whoever goes on with these alone must come to an end."""

    name: str
    do: Callable[[], Any]
    honest: bool = True


def make(world: World, move: Move) -> None:
    """Make a choice, and let whoever has an answer go on."""
    world.trace.append(move.name)
    for life in world.lives:
        life.used = life.used or move.name.startswith(life.name)
    move.do()
    world.settle()


def moves(world: World) -> Iterator[Move]:
    """All that can happen now, in an order that is always the same."""
    fresh = False
    for life in world.lives:
        if not (fresh and not life.used):  # of workers that have done nothing yet, one is as good as another
            yield from _of_worker(world, life)
        fresh = fresh or not life.used
    for flight in world.flights:
        yield from _late(world, flight)
    if _time_matters(world):
        yield Move("time passes", lambda: advance(world, world.now + STEP))
    yield from _of_people(world)


def _fault(world: World, do: Callable[[], Any]) -> Callable[[], Any]:
    def spent() -> None:
        world.faults -= 1
        do()

    return spent


def _may(world: World, kind: str) -> bool:
    return world.faults > 0 and kind in world.scenario.kinds


# --- workers ----------------------------------------------------------------------------------------------------------


def _of_worker(world: World, life: Life) -> Iterator[Move]:
    who = life.name
    if life.dead or (life.opened.fenced and not life.actors and not life.frozen):
        yield Move(f"{who} is started anew", lambda: _anew(world, life))
        return
    if life.frozen:
        yield Move(f"{who} wakes", lambda: _wake(life))
        return
    if life.writer.busy:
        yield from _commits(world, life)
    for actor in life.actors:
        yield from _of_actor(world, life, actor)
    if not life.working and life.opened.alive() and _due(world):
        yield Move(f"{who} asks for work", lambda: world.spawn(f"{who} works", life, lambda: world.work(life)))
    if _to_tend(world, life):
        yield Move(f"{who} looks after others", lambda: world.spawn(f"{who} tends", life, life.opened.tend))
    if life.actors or life.writer.busy or any(f.life is life and f.code for f in world.flights):
        if _may(world, "kill"):
            yield Move(f"{who} is killed", _fault(world, life.kill), honest=False)
        if _may(world, "freeze"):
            yield Move(f"{who} freezes", _fault(world, lambda: _freeze(life)), honest=False)


def _freeze(life: Life) -> None:
    life.frozen = True


def _wake(life: Life) -> None:
    life.frozen = False
    answers, life.writer.unheard = life.writer.unheard, []
    if answers:
        life.writer.tell(answers)


def _anew(world: World, life: Life) -> None:
    life.kill()
    world.lives[world.lives.index(life)] = world.start(life.name.partition(".")[0])


def _due(world: World) -> bool:
    at = world.client.clock.wall_ms()
    return any(row.due <= at for row in world.disk.tables.ready)


def _to_tend(world: World, life: Life) -> bool:
    """Whether a look around would find anything; it is a standing duty, and else changes nothing."""
    session, tables = life.opened, world.disk.tables
    if session.fenced or any(actor.name.endswith("tends") for actor in life.actors):
        return False
    rows = [row for row in tables.sessions.values() if not row.fenced and row.id != session.id]
    unlearnt = any(
        session._known_unknown.get((TENANT, row.key), (-1, None))[0] != tables.effects[TENANT, row.key].version
        or _would_note(world, life, row.key)
        for row in tables.unknown.values()
    )
    ours = {(row.tenant, row.task) for row in tables.inflight if row.session == session.id}
    strange = {place for place in ours if place not in session.held}
    return bool(
        any(session.knows_dead(row) for row in rows) or life.handle.orphans(None, 1) or unlearnt or strange or session.strange
    )


def _would_note(world: World, life: Life, key: str) -> bool:
    """Whether a look would put on record that settle is over."""
    since, x = life.learnt._since.get((TENANT, key)), life.opened._known_unknown[TENANT, key][1]
    blocked = x is not None and world.task_of(x.task).delivery is Delivery.BLOCKED
    if x is None or since is None or not blocked or x.watched or x.answered:
        return False
    return world.now - since[1] >= world.scenario.settle


def _commits(world: World, life: Life) -> Iterator[Move]:
    who, writer = life.name, life.writer
    what = f"{who} commits {writer.words()}"
    yield Move(what, lambda: writer.tell(writer.commit()))
    if len(writer.queue) > 1 and not writer.doubt:
        yield Move(f"{what}, the first alone", lambda: writer.tell(writer.commit(1)))
    if _may(world, "reply") and not writer.doubt:
        yield Move(f"{what}, and the reply is lost", _fault(world, writer.commit), honest=False)
        if "kill" in world.scenario.kinds:
            yield Move(f"{what}, and is killed then", _fault(world, lambda: (writer.commit(), life.kill())), honest=False)
        if "freeze" in world.scenario.kinds:
            yield Move(f"{what}, and freezes then", _fault(world, lambda: _freeze_unheard(life)), honest=False)


def _freeze_unheard(life: Life) -> None:
    life.writer.unheard = life.writer.commit()
    life.frozen = True


# --- calls ------------------------------------------------------------------------------------------------------------


def _of_actor(world: World, life: Life, actor: Actor) -> Iterator[Move]:
    request, branch = actor.request, actor.name.partition(" works")[2]
    if isinstance(request, Sleep):
        yield Move(f"{life.name} has waited{branch}", lambda: (advance(world, actor.until), _go_on(world, actor, None)))
    elif isinstance(request, Call) and isinstance(request.fn, LookupCall):
        yield from _lookup(world, life, actor)
    elif isinstance(request, Call) and isinstance(request.fn, EffectCall):
        yield from _fates(world, life, actor)


def _go_on(world: World, actor: Actor, answer: Any) -> None:
    if not actor.over and not (actor.life is not None and actor.life.dead):
        world.resume(actor, answer)


def _lookup(world: World, life: Life, actor: Actor) -> Iterator[Move]:
    key = actor.asked
    what = f"{life.name} looks {world.short(key)} up{actor.name.partition(' works')[2]}"
    yield Move(f"{what}, and is told the truth", lambda: world.resume(actor, Returned(_truth(world, key))))
    if _may(world, "call"):
        no = Raised(ConnectionError("no answer"))
        yield Move(f"{what}, and cannot ask", _fault(world, lambda: world.resume(actor, no)), honest=False)
    if _may(world, "slow") and not actor.saw:
        saw = "happened" if world.provider.acts[key] else "not there"

        def later() -> None:
            actor.saw = saw

        yield Move(f"{what}; the answer is under way", _fault(world, later), honest=False)
    if actor.saw:
        verdict = DONE if actor.saw == "happened" else NOT_DONE
        yield Move(f"{what}, and hears what was so", lambda: world.resume(actor, Returned(verdict)))


def _truth(world: World, key: str) -> Any:
    return DONE if world.provider.acts[key] else NOT_DONE


def _fates(world: World, life: Life, actor: Actor) -> Iterator[Move]:
    flight = actor.flight
    assert flight is not None
    key = flight.doing.key
    what = f"{life.name}'s call of {world.short(key)}"

    def ends(answer: Returned | Raised | None, *, acts: bool, under_way: bool = False) -> Callable[[], None]:
        def do() -> None:
            taken = world.provider.take(key) if acts else None
            flight.acted = flight.acted or acts
            flight.code = False
            flight.until = world.now + world.scenario.settle if under_way else None
            world.resume(actor, answer if answer is not None else taken)

        return do

    if flight.acted:
        yield Move(f"{what} is answered", ends(Returned("done"), acts=False))
        return
    yield Move(f"{what} acts, and is answered", ends(None, acts=True))
    reset, refused = Raised(ConnectionResetError("reset")), Raised(ConnectionRefusedError("refused"))
    for kind, name, do in (
        ("lost", "acts, and its answer is lost", ends(reset, acts=True)),
        ("refused", "is refused", ends(refused, acts=False)),
        ("under way", "breaks, and what it sent is under way", ends(reset, acts=False, under_way=True)),
        ("late", "times out, and its code runs on", lambda: _times_out(world, actor, flight)),
    ):
        if _may(world, "call") or _may(world, kind):
            yield Move(f"{what} {name}", _fault(world, do), honest=False)


def _times_out(world: World, actor: Actor, flight: Flight) -> None:
    flight.timed_out = True
    advance(world, flight.doing.began + flight.doing.seconds)
    _go_on(world, actor, TimedOut())


def _late(world: World, flight: Flight) -> Iterator[Move]:
    """What a call still does whose caller is gone, or has given it up."""
    life, key = flight.life, flight.doing.key
    what = f"what {life.name} sent for {world.short(key)} ({flight.doing.n})"
    if flight.until is not None or (life.frozen and flight.code):
        if not flight.acted:
            yield Move(f"{what} acts", lambda: _acts(world, flight), honest=False)
    elif flight.timed_out and flight.code and not life.frozen:
        if not flight.acted:
            yield Move(f"{what} acts late, and its code returns", lambda: (_acts(world, flight), _ends_late(flight, True)))
            yield Move(f"{what} does nothing, and its code raises", lambda: _ends_late(flight, False))
        else:
            yield Move(f"{what} is answered late", lambda: _ends_late(flight, True))


def _acts(world: World, flight: Flight) -> None:
    world.provider.take(flight.doing.key)
    flight.acted, flight.until = True, None


def _ends_late(flight: Flight, happened: bool) -> None:
    flight.code = False
    assert flight.late is not None
    flight.late(Returned("done") if happened else Raised(ConnectionResetError("reset")))


# --- time -------------------------------------------------------------------------------------------------------------


def advance(world: World, until: float) -> None:
    """The clock moves on; whoever lives beats and watches meanwhile, and the kernel kills whom it must."""
    while world.now < until:
        world.now = min(until, world.now + STEP)
        for flight in world.flights:
            if flight.until is not None and flight.until <= world.now:
                flight.until = None
        for life in world.lives:
            if life.dead or (life.frozen and world.scenario.paused):
                continue
            if life.watchdog.enabled and life.watchdog.running and world.now >= life.watchdog.deadline:
                life.kill()
            elif not life.frozen and not life.opened.fenced:
                life.opened._beat()
                if not life.opened.fenced:
                    life.opened.watch()


def _time_matters(world: World) -> bool:
    """Whether anybody waits for it: a lease to run out, or a task to fall due."""
    at = world.client.clock.wall_ms()
    if any(row.due > at for row in world.disk.tables.ready):
        return True
    living = {life.opened.id for life in world.lives if not life.dead and not life.frozen}
    silent = any(not row.fenced and row.id not in living for row in world.disk.tables.sessions.values())
    late = any((flight.timed_out and flight.code) or flight.until is not None for flight in world.flights)
    unsure = any(not life.opened.fenced and not life.opened.alive() for life in world.lives if not life.dead and not life.frozen)
    return silent or late or unsure or _settling(world) or any(actor.saw for actor in world.actors)


def _settling(world: World) -> bool:
    """Whether settle is being watched of what a person is asked about."""
    return any(
        world.now - since < world.scenario.settle and x is not None and not x.watched
        for life in world.lives
        if not life.dead and not life.frozen and not life.opened.fenced
        for (_, key), (_, since) in life.learnt._since.items()
        for x in [life.opened._known_unknown.get((TENANT, key), (-1, None))[1]]
    )


# --- people -----------------------------------------------------------------------------------------------------------


def _of_people(world: World) -> Iterator[Move]:
    for stream, x in world.effects():
        name = world.short(x.key)
        task = world.task_of(x.task)
        able = any(flight.able for flight in world.flights if flight.doing.key == x.key)
        asked = task.delivery is Delivery.BLOCKED or "early" in world.scenario.persons
        asked = asked and x.state is EffectState.AMBIGUOUS and not x.answered
        if asked and x.key not in world.looks and (not able or world.scenario.hasty or _unfenced(x)):
            yield Move(f"a person looks at {name}", lambda x=x: _looks(world, x))  # type: ignore[misc]
        if x.key in world.looks:
            said = "it happened" if world.looks[x.key].happened else "it did not happen"
            yield Move(f"the person says of {name}: {said}", lambda s=stream, x=x: _answers(world, x))  # type: ignore[misc]
    for (_, stream), state in sorted(world.folded.items()):
        if not isinstance(state, t.Task):
            continue
        if "cancel" in world.scenario.persons and world.faults and not state.ended and not state.ending:
            yield Move(f"a person cancels {stream}", _fault(world, lambda s=stream: _cancels(world, s)), honest=False)  # type: ignore[misc]
        if "replay" in world.scenario.persons and world.faults and (state.ended or state.delivery is Delivery.BLOCKED):
            yield Move(f"a person replays {stream}", _fault(world, lambda s=stream: _replays(world, s)), honest=False)  # type: ignore[misc]
        if "deliver" in world.scenario.persons and world.faults:
            again = lambda k=state.key, s=stream: _delivered(world, k, s)  # type: ignore[misc]  # noqa: E731
            yield Move(f"{stream} is delivered again", _fault(world, again), honest=False)


def _unfenced(x: Any) -> bool:
    return any(s.unfenced and not s.quiet for s in x.open)


def _by_person(world: World, procedure: Any) -> None:
    """A person's decision, landed at once."""

    def decide() -> None:
        try:
            world.drive(procedure)
        except Refused:
            pass

    actor = world.spawn("person", None, decide)
    while not actor.over:
        world.client.writer.land()  # type: ignore[attr-defined]
        world.settle()


def _looks(world: World, x: Any) -> None:
    """Whoever is asked to look stops first what nothing else can stop."""
    stopped = False
    for s in x.open:
        if s.unfenced and not s.quiet:
            stopped = True
            for life in world.lives:
                if life.opened.id == s.session:
                    life.kill()
            for flight in world.flights:
                if flight.doing.key == x.key and flight.doing.n == s.n:
                    flight.code, flight.until = False, None
    world.looks[x.key] = Look(bool(world.provider.acts[x.key]), x.version, stopped)


def _answers(world: World, x: Any) -> None:
    look = world.looks.pop(x.key)
    row = world.disk.tables.effects[TENANT, x.key]
    verdict = DONE if look.happened else NOT_DONE
    _by_person(world, review.resolve(
        world.client, row, verdict, by="alice", reason="looked", seen=look.version, stopped=look.stopped, encode=lambda v: v
    ))  # fmt: skip


def _cancels(world: World, task: str) -> None:
    _by_person(world, review.cancel(world.client, TENANT, task, by="alice", reason="no"))


def _replays(world: World, task: str) -> None:
    _by_person(world, review.replay(world.client, TENANT, task, by="alice", reason="again", from_step=""))


def _delivered(world: World, key: str, task: str) -> None:
    assert world.accept(key) == task, "the same task, delivered again, is another one"
