"""Identity end to end: bound to the work, observed just before each call, and nothing submitted as somebody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel.engine import startcheck
from semel.engine.runtime import Runtime
from semel.testing import Harness

ALICE = {"profile": "p1", "account": "alice", "target": "shop.example"}


class Shop:
    """An app whose agent buys, as whom and where the test chooses. observe: what the page says who is logged in."""

    def __init__(self, *, binds: bool = True, **how: Any) -> None:
        self.app = app = semel.App("sqlite:///never-made.db")
        self.bought: list[str] = []
        self.looked: list[str] = []
        self.observed = 0
        self.page: Any = dict(ALICE)
        self.binds: dict[str, str] = dict(ALICE) if binds else {}
        self.fails: BaseException | None = None
        self.there: semel.Verdict = semel.NotFound()
        self.first: Callable[[], object] = lambda: None

        def who(order: str) -> Mapping[str, str]:
            self.observed += 1
            return self.page() if callable(self.page) else self.page

        def find(submission: semel.Submission, order: str) -> semel.Verdict:
            self.looked.append(order)
            return self.there

        how = {"recovery": semel.Lookup(find, settle=timedelta(0)), "timeout": timedelta(seconds=0.2), **how}

        @app.effect(intent=("order",), identity=who, **how)
        def buy(submission: semel.Submission, order: str) -> str:
            self.bought.append(order)
            if self.fails is not None:
                raise self.fails
            return f"bought {order}"

        @app.effect(intent=("order",))
        def note(submission: semel.Submission, order: str) -> str:
            self.bought.append(f"note {order}")
            return order

        @app.task(retry=semel.Retry(max_attempts=2))
        def shopping(order: str) -> str:
            self.first()
            if self.binds:
                semel.bind(**self.binds)
            return str(buy(order))

        self.buy, self.note, self.shopping = buy, note, shopping

    def blocked(self, task: semel.Ref[Any]) -> str:
        """Why the task is blocked, which must be for its identity."""
        state = self.app.tasks.get(task)
        assert state.delivery == "blocked" and state.why.startswith("identity_mismatch: "), state
        return state.why.removeprefix("identity_mismatch: ")

    def kinds(self, task: semel.Ref[Any]) -> list[str]:
        return [event.kind for event in self.app.journal(task)]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def h(shop: Shop) -> Iterator[Harness]:
    with Harness(shop.app) as harness:
        yield harness


def start(shop: Shop, h: Harness, order: str = "o1") -> semel.Ref[str]:
    task = shop.shopping.using(key=order).enqueue(order)
    h.run()
    return task


def test_what_is_bound_is_on_record_before_the_intent_and_what_was_observed_with_it(shop: Shop, h: Harness) -> None:
    task = start(shop, h)
    assert task.result() == "bought o1" and shop.bought == ["o1"] and shop.observed == 1
    kinds = shop.kinds(task)
    assert kinds.index("bound") < kinds.index("intended")
    bodies = {event.kind: event.body for event in shop.app.journal(task)}
    assert bodies["bound"]["identity"] == ALICE and bodies["intended"]["observed"] == ALICE


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ({**ALICE, "account": "bob"}, "account is bound to 'alice', and 'bob' is observed"),
        ({**ALICE, "profile": "p2"}, "profile is bound to 'p1', and 'p2' is observed"),
        ({**ALICE, "target": "evil.example"}, "target is bound to 'shop.example', and 'evil.example' is observed"),
        ({**ALICE, "account": ""}, "account is bound to 'alice', and '' is observed"),
        ({"profile": "p1", "target": "shop.example"}, "account is bound to 'alice', and it was not observed"),
        ({}, "account is bound to 'alice', and it was not observed"),
        ({**ALICE, "shop": "2"}, "shop is observed as '2', and is not bound"),
        (None, "could not be observed: its function returned NoneType"),
        ("alice", "could not be observed: its function returned str"),
        ({**ALICE, "account": None}, "could not be observed: its function returned NoneType for 'account'"),
        ({1: "alice"}, "could not be observed: its function returned str for '1'"),
        ({**ALICE, "account": "a" * 201}, "could not be observed: what it returned for 'account' is not at most 200"),
        ({**ALICE, "account": "a\n"}, "could not be observed: what it returned for 'account' is not at most 200"),
    ],
)
def test_as_anybody_else_nothing_is_submitted(shop: Shop, h: Harness, page: object, says: str) -> None:
    shop.page = page
    task = start(shop, h)
    assert says in shop.blocked(task)
    assert not shop.bought and "intended" not in shop.kinds(task)
    (there,) = [event.body for event in shop.app.journal(task) if event.kind == "mismatched"]
    assert there["name"] == "buy" and says in there["why"]
    h.advance(timedelta(days=3))
    h.run()
    assert shop.app.tasks.get(task).attempt == 1 and not shop.bought


def raises() -> None:
    raise PermissionError("the login has expired")


def hangs() -> None:
    time.sleep(1.0)


@pytest.mark.parametrize(
    ("page", "says"), [(raises, "PermissionError: the login has expired"), (hangs, "no answer within 0.2 s")]
)
def test_what_cannot_be_observed_blocks_and_goes_on_when_it_can(shop: Shop, h: Harness, page: object, says: str) -> None:
    shop.page = page
    task = start(shop, h)
    assert shop.blocked(task) == f"the identity for buy could not be observed: {says}" and not shop.bought
    shop.page = ALICE  # a person logs in again
    shop.app.review.replay(task, by="ann")
    h.run()
    assert task.result() == "bought o1" and shop.bought == ["o1"]
    shop.app.review.replay(task, by="ann")
    shop.page = raises
    h.run()
    assert task.result() == "bought o1" and shop.bought == ["o1"], "what is on record needs no login"


def test_an_async_observer_that_hangs_is_given_up(h: Harness) -> None:
    app, sent = semel.App("sqlite:///never-made.db"), list[str]()

    async def who() -> dict[str, str]:
        await asyncio.sleep(60)
        return {"account": "alice"}

    @app.effect(intent=("order",), identity=who, timeout=timedelta(seconds=0.1))
    async def buy(submission: semel.Submission, order: str) -> None:
        sent.append(order)

    @app.task(intent=("order",))
    async def shopping(order: str) -> None:
        semel.bind(account="alice")
        await buy(order)

    with Harness(app) as other:
        task = shopping.enqueue("o1")
        other.run()
        state = app.tasks.get(task)
        assert "could not be observed" in state.why and state.delivery == "blocked" and not sent


def test_nothing_bound_submits_nothing_and_names_the_line_to_type() -> None:
    shop = Shop(binds=False)
    with Harness(shop.app) as h:
        task = start(shop, h)
        assert "nothing is bound to its task; write semel.bind(account=..., profile=..., target=...) before it" in shop.blocked(
            task
        )
        assert not shop.bought
        shop.binds = ALICE  # the code is mended
        shop.app.review.replay(task, by="ann")
        h.run()
        assert task.result() == "bought o1" and shop.bought == ["o1"]


# --- binding ----------------------------------------------------------------------------------------------------------


def test_the_same_again_is_nothing_and_further_names_are_added(shop: Shop, h: Harness) -> None:
    shop.first = lambda: semel.bind(account="alice")
    task = start(shop, h)
    bound = [event.body["identity"] for event in shop.app.journal(task) if event.kind == "bound"]
    assert bound == [{"account": "alice"}, {"profile": "p1", "target": "shop.example"}] and shop.bought == ["o1"]
    shop.app.review.replay(task, by="ann")
    h.run()
    assert shop.kinds(task).count("bound") == 2


def test_another_value_in_the_same_attempt_blocks_and_starts_nothing_more(shop: Shop, h: Harness) -> None:
    swallowed: list[BaseException] = []

    def first() -> None:
        semel.bind(account="bob")
        try:
            semel.bind(account="alice")
        except BaseException as error:  # a handler that catches all
            swallowed.append(error)
        shop.note("o1")

    shop.first = first
    task = start(shop, h)
    assert shop.blocked(task) == "another identity: account is bound to 'bob', and this attempt binds 'alice'"
    assert isinstance(swallowed[0], semel.Suspended) and not shop.bought


def test_another_machine_with_another_profile_submits_nothing(shop: Shop, h: Harness) -> None:
    shop.page = {**ALICE, "profile": "p2"}

    def dies_once() -> None:
        semel.bind(**ALICE)
        shop.first = lambda: None
        raise ConnectionError("the first machine went away")

    shop.first = dies_once
    task = shop.shopping.using(key="o1").enqueue("o1")
    h.run()
    shop.binds = {**ALICE, "profile": "p2"}
    h.advance(timedelta(minutes=5))
    h.run()
    assert not shop.bought
    assert "profile is bound to 'p1'" in shop.blocked(task)


def test_a_person_may_bind_anew_and_that_is_on_record(shop: Shop, h: Harness) -> None:
    shop.page = {**ALICE, "profile": "p2"}
    task = start(shop, h)
    shop.binds = {**ALICE, "profile": "p2"}
    with pytest.raises(semel.Refused, match="'profil' is not bound"):
        shop.app.review.replay(task, by="ann", identity={"profil": "p2"})
    with pytest.raises(semel.Misuse, match="names nothing"):
        shop.app.review.replay(task, by="ann", identity={})
    shop.app.review.replay(task, by="ann", reason="moved", identity={"profile": "p2"})
    h.run()
    assert task.result() == "bought o1" and shop.bought == ["o1"]
    *_, anew = [event for event in shop.app.journal(task) if event.kind == "bound"]
    assert anew.actor == "person:ann" and anew.body == {"identity": {"profile": "p2"}, "by": "ann", "watched": ()}


def test_an_agent_cannot_bind_anew(shop: Shop, h: Harness) -> None:
    shop.page = {**ALICE, "account": "bob"}
    task = start(shop, h)

    def agent() -> None:
        shop.app.review.replay(task, by="ann", identity={"account": "bob"})

    shop.first = agent
    other = start(shop, h, "o2")
    assert "an agent cannot decide about its own acts" in shop.app.tasks.get(other).why
    assert shop.blocked(task) and not shop.bought


def test_bind_outside_any_work_or_inside_an_effect_is_misuse(shop: Shop, h: Harness) -> None:
    with pytest.raises(semel.Misuse, match=r"semel\.bind was called outside any work"):
        semel.bind(account="alice")
    said: list[str] = []

    def page() -> Mapping[str, str]:
        try:
            semel.bind(account="alice")
        except semel.Misuse as error:
            said.append(str(error))
        return ALICE

    shop.page = page
    start(shop, h)
    assert said == ["semel.bind was called inside an identity function; call it from the handler, one after the other"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({}, "names nothing"),
        ({"account": ""}, "account must be text that is not empty"),
        ({"account": 7}, "account must be text that is not empty, not 7"),
        ({"account": "a" * 201}, "account must be at most 200 printable characters"),
        ({"account": "a\x00"}, "account must be at most 200 printable characters"),
        ({"": "alice"}, r"a name in semel\.bind\(\) must be text"),
    ],
)
def test_bad_bindings_are_misuse_and_bind_nothing(shop: Shop, h: Harness, names: dict[str, Any], says: str) -> None:
    caught: list[semel.Misuse] = []

    def first() -> None:
        with pytest.raises(semel.Misuse, match=says) as error:
            semel.bind(**names)
        caught.append(error.value)

    shop.first = first
    task = start(shop, h)
    assert caught and shop.kinds(task).count("bound") == 1 and shop.bought == ["o1"]


def test_identity_functions_are_checked_at_import() -> None:
    app = semel.App("sqlite:///never-made.db")

    def buy(submission: semel.Submission, order: str) -> str:
        return order

    def names_another(account: str) -> dict[str, str]:
        return {}

    def gives_text(order: str) -> str:
        return order

    for identity, says in (
        ({"account": "alice"}, "write a function of its arguments that looks"),
        (names_another, "its identity function names_another asks for 'account', which is no parameter of the effect"),
        (gives_text, "its identity function gives_text returns <class 'str'>; write -> dict"),
    ):
        with pytest.raises(semel.Misuse, match=says):
            app.effect(intent=("order",), identity=identity)(buy)  # type: ignore[arg-type]
    for good in (lambda order: {}, lambda: {}):
        app.effect(intent=("order",), identity=good, name=f"buy{id(good)}")(buy)


# --- the unknown ------------------------------------------------------------------------------------------------------


def lost(shop: Shop, h: Harness) -> semel.Ref[str]:
    """A task whose order is unknown: it was sent as alice, its worker died, and somebody else is logged in when it comes back."""
    shop.page = dict(ALICE)
    h.crash(shop.buy, "after")
    shop.page = iter_pages(dict(ALICE), {**ALICE, "account": "bob"})
    return start(shop, h)


def iter_pages(*pages: Mapping[str, str]) -> Callable[[], Mapping[str, str]]:
    """Each page once, the last for ever."""
    left = list(pages)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_lookup_as_somebody_else_is_not_asked_and_not_believed(shop: Shop, h: Harness) -> None:
    task = lost(shop, h)
    assert "account is bound to 'alice', and 'bob' is observed" in shop.blocked(task)
    assert shop.bought == ["o1"] and not shop.looked
    shop.page, shop.there = ALICE, semel.Confirmed("found it")
    shop.app.review.replay(task, by="ann")
    h.run()
    assert task.result() == "found it" and shop.bought == ["o1"] and shop.looked == ["o1"]
    (found,) = [event.body for event in shop.app.journal(task) if event.kind == "found"]
    assert found["observed"] == ALICE


def test_nothing_is_sent_again_as_somebody_else() -> None:
    shop = Shop(recovery=semel.Resend(within=timedelta(hours=24)))
    with Harness(shop.app) as h:
        task = lost(shop, h)
        assert "account is bound to 'alice', and 'bob' is observed" in shop.blocked(task) and shop.bought == ["o1"]
        shop.page = ALICE
        shop.app.review.replay(task, by="ann")
        h.run()
        assert task.result() == "bought o1" and shop.bought == ["o1", "o1"]
        assert [event.body["observed"] for event in shop.app.journal(task) if event.kind == "intended"] == [ALICE, ALICE]


def test_bound_anew_while_it_is_unknown_it_is_not_looked_up_in_the_other_account(shop: Shop, h: Harness) -> None:
    task = lost(shop, h)
    shop.binds = {**ALICE, "account": "bob"}
    shop.app.review.replay(task, by="ann", identity={"account": "bob"})
    h.run()
    assert "account was 'alice' when it was sent, and 'bob' is observed" in shop.blocked(task) and not shop.looked
    key = next(event.body["key"] for event in shop.app.journal(task) if event.kind == "intended")
    shop.app.review.resolve(key, semel.Confirmed("seen in alice's orders"), by="ann")
    h.run()
    assert task.result() == "seen in alice's orders" and shop.bought == ["o1"]


def test_code_that_looks_no_more_does_not_settle_what_was_sent_under_an_identity() -> None:
    shop = Shop()
    with Harness(shop.app) as h:
        task = lost(shop, h)
        declared = shop.app.declared_effects.get("buy")
        object.__setattr__(declared, "identity", None)  # rolled back
        shop.app.review.replay(task, by="ann")
        with pytest.raises(semel.Misuse, match=r"effect 'buy' .* this code does not look \(identity= is gone\): 1 unfinished"):
            h.run()
        startcheck.check(shop.app.runtime.desk, shop.app.code, None, by="ann", reason="for new tasks")
        h.run()
        assert "the code observes no identity any more; declare identity= again" in shop.blocked(task)
        assert shop.bought == ["o1"] and not shop.looked


def looks(shop: Shop, identity: Any) -> None:
    """Its code as it was before it looked, or after."""
    object.__setattr__(shop.app.declared_effects.get("buy"), "identity", identity)


def test_code_that_does_not_look_sends_nothing_for_a_task_that_was_bound_by_code_that_did(shop: Shop, h: Harness) -> None:
    """The effect is not on record yet: what the binding says of it is."""
    declared = shop.app.declared_effects.get("buy")
    assert declared is not None
    who = declared.identity
    looks(shop, None)
    start(shop, h, "o0")  # this code has run here before: rolled back, it starts all the same
    looks(shop, who)
    shop.page = raises
    task = start(shop, h)
    assert shop.blocked(task) and "intended" not in shop.kinds(task)
    looks(shop, None)
    shop.app.review.replay(task, by="ann")
    h.run()
    state = shop.app.tasks.get(task)
    assert state.delivery == "blocked" and "identity= is gone" in state.why and shop.bought == ["o0"]
    looks(shop, who)
    shop.page = ALICE
    shop.app.review.replay(task, by="ann")
    h.run()
    assert task.result() == "bought o1"


def test_direct_work_that_was_bound_by_code_that_looked_is_not_entered_by_code_that_does_not(shop: Shop, h: Harness) -> None:
    declared = shop.app.declared_effects.get("buy")
    assert declared is not None
    who = declared.identity
    with shop.app.work("pr-1", kind="agent"):
        semel.bind(**ALICE)
    looks(shop, None)
    with pytest.raises(semel.Misuse, match="identity= is gone"), shop.app.work("pr-1", kind="agent"):
        shop.buy("o1")
    assert not shop.bought
    looks(shop, who)
    with shop.app.work("pr-1", kind="agent"):
        semel.bind(**ALICE)
        shop.buy("o1")
    assert shop.bought == ["o1"]


def test_a_person_binds_what_was_observed_of_an_unknown_that_was_sent_before_its_code_looked() -> None:
    shop = Shop(binds=False)
    who = shop.app.declared_effects.get("buy").identity  # type: ignore[union-attr]
    looks(shop, None)
    with Harness(shop.app) as h:
        h.crash(shop.buy, "after")
        shop.there = semel.Unavailable("down", retry_after=timedelta(minutes=1))
        task = start(shop, h)
        assert shop.app.tasks.get(task).execution == "unknown" and shop.looked == ["o1"]
        looks(shop, who)
        shop.looked.clear()
        shop.there = semel.Confirmed("found it")
        h.advance(timedelta(minutes=2))
        h.run()
        assert "nothing is bound to its task" in shop.blocked(task) and not shop.looked
        with pytest.raises(semel.Refused, match=r"'acount' is not bound .* nor was it observed \(that was account='alice'"):
            shop.app.review.replay(task, by="ann", identity={"acount": "alice"})
        shop.app.review.replay(task, by="ann", identity=ALICE, reason="I have looked at the orders")
        h.run()
        assert task.result() == "found it" and shop.looked == ["o1"] and shop.bought == ["o1"]
        (anew,) = [event for event in shop.app.journal(task) if event.kind == "bound"]
        assert anew.actor == "person:ann" and anew.body["identity"] == ALICE


def test_tenant_scoped_keys_are_guarded_too() -> None:
    shop = Shop(scope="tenant")
    with Harness(shop.app) as h:
        task = lost(shop, h)
        assert "'bob' is observed" in shop.blocked(task) and shop.bought == ["o1"] and not shop.looked
        shop.page = ALICE
        shop.app.review.replay(task, by="ann")
        h.run()
        assert task.result() == "bought o1" and shop.looked == ["o1"] and shop.bought == ["o1", "o1"], (
            "it was not found: sent anew"
        )


def test_a_task_of_another_account_settles_nothing_of_a_key_that_both_share() -> None:
    shop = Shop(scope="tenant")
    with Harness(shop.app) as h:
        task = lost(shop, h)
        assert shop.blocked(task)
        shop.binds = {**ALICE, "account": "bob"}
        shop.page = {**ALICE, "account": "bob"}
        other = shop.shopping.using(key="o9").enqueue("o1")
        h.run()
        assert shop.bought == ["o1"] and not shop.looked
        assert shop.app.tasks.get(other).why == "the outcome of buy is unknown"


# --- with approvals, in direct mode -----------------------------------------------------------------------------------


def test_people_approve_first_and_it_is_observed_just_before_it_is_sent() -> None:
    shop = Shop(approve=True)
    with Harness(shop.app) as h:
        task = start(shop, h)
        (waiting,) = shop.app.review.pending()
        assert shop.observed == 0
        shop.page = {**ALICE, "account": "bob"}  # logged out meanwhile
        shop.app.review.approve(waiting.key, by="ann")
        h.run()
        assert "'bob' is observed" in shop.blocked(task) and not shop.bought and shop.observed == 1
        shop.page = ALICE
        shop.app.review.replay(task, by="ann")
        h.run()
        assert task.result() == "bought o1" and shop.bought == ["o1"], "the approval still stands"


def test_in_direct_mode_too(shop: Shop, h: Harness) -> None:
    def work() -> None:
        with shop.app.work("pr-1", kind="agent"):
            semel.bind(**ALICE)
            shop.buy("o1")

    shop.page = {**ALICE, "account": "bob"}
    with pytest.raises(semel.Unsettled, match=r"identity_mismatch: .*'bob' is observed"):
        work()
    assert not shop.bought
    shop.page = ALICE
    with pytest.raises(semel.Unsettled, match="blocked"):
        work()
    (task,) = shop.app.tasks.list(kind="agent")
    shop.app.review.replay(task.ref, by="ann")
    work()
    assert shop.bought == ["o1"]


def test_each_try_is_observed_anew() -> None:
    shop = Shop(not_done=(ConnectionRefusedError,), tries=3)
    with Harness(shop.app) as h:
        shop.fails = ConnectionRefusedError("busy")
        shop.page = iter_pages(ALICE, {**ALICE, "account": "bob"})
        task = start(shop, h)
        assert "'bob' is observed" in shop.blocked(task) and shop.bought == ["o1"]


def test_what_was_observed_long_before_the_intent_was_durable_is_observed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stalls = [6.0, 0.0]
    entering = Runtime.entering

    def stalled(self: Runtime, *call: Any) -> Any:
        h.clock.move(stalls.pop(0))
        return entering(self, *call)

    monkeypatch.setattr(Runtime, "entering", stalled)
    shop = Shop(timeout=timedelta(seconds=30))
    with Harness(shop.app) as h:
        task = start(shop, h)
        assert task.result() == "bought o1" and shop.bought == ["o1"] and shop.observed == 2 and not stalls
        told = [event.body["reason"] for event in shop.app.journal(task) if event.kind == "disproved"]
    assert told == ["not sent: as whom was observed too long before its intent was durable"]


def test_a_fake_is_sent_as_what_is_bound_and_still_needs_a_binding() -> None:
    shop = Shop()
    with Harness(shop.app) as h:
        shop.page = raises
        h.fake(shop.buy, lambda order: f"fake {order}")
        assert start(shop, h).result() == "fake o1"
        shop.binds = {}
        assert "nothing is bound" in shop.blocked(start(shop, h, "o2"))
        h.fake(shop.buy, lambda order: f"fake {order}", own_lookup=True)
        shop.binds = ALICE
        assert "the login has expired" in shop.blocked(start(shop, h, "o3"))
