"""`semel why`: the story of a task or an effect, in sentences that say what the journal says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from cli_office import Office, until

from semel.cli import tell, why
from semel.cli.tell import Line, Teller
from semel.machine import journal as j
from semel.machine.journal import Row


def flat(text: str) -> str:
    """Without line breaks and columns."""
    return re.sub(r"\s+", " ", text)


def story(office: Office, of: str) -> str:
    return flat(office.look("why", of).stdout)


# --- of a real day ----------------------------------------------------------------------------------------------------


def test_the_verdict_comes_first(worked: Office) -> None:
    said = {
        "inv_1": "DONE  bill inv_1 succeeded on attempt 1: 4 effects confirmed.",
        "inv_cut": "BLOCKED  bill inv_cut waits for a person: nobody but a person can tell.",
        "inv_s": "DEAD-LETTERED  spoil inv_s: failed 2 times: ValueError: the printer is on fire.",
        worked.effect("inv_1", "charge")["key"]: "CONFIRMED  charge of bill inv_1 happened: its own answer says so.",
        worked.effect("inv_cut", "post")["key"]: "UNKNOWN  Nobody can tell yet whether post of bill inv_cut happened;",
        worked.effect("inv_cut", "mail")["key"]: "CONFIRMED  mail of bill inv_cut happened: lookup find_mail found it.",
        worked.effect("inv_g", "sign")["key"]: "NOT ATTEMPTED  sign of signed inv_g did not happen: there is proof",
    }
    for of, words in said.items():
        assert story(worked, of).startswith(flat(words)), of
        assert worked.json("why", of)["verdict"].startswith(words)


def test_an_effect_tells_who_asked_what_was_sent_and_what_came_back(worked: Office) -> None:
    charge = worked.effect("inv_1", "charge")
    token = charge["submissions"][0]["token"]
    told = story(worked, charge["key"])
    for words in (
        "A caller asked for bill with the key inv_1.",
        f"with token {token}",
        f"Attempt 1 asks for charge; the intent is on record: submission 1, under token {token}.",
        'sent {"invoice": "inv_1", "cents": 1200}',
        "charge returned: it happened.",
        'got {"id": "charge_inv_1", "cents": 1200}',
        "Attempt 1 finished the task.",
    ):
        assert words in told
    assert re.search(r"Attempt 1 began in session [0-9a-f]{8} \(pid \d+ on \S+\), with token", told)
    assert "Step draft" not in told and "mail" not in told.partition("finished")[0]


def test_a_lookup_that_settles_an_unknown_is_named_with_how_long_it_was(worked: Office) -> None:
    told = story(worked, worked.effect("inv_cut", "mail")["key"])
    assert "Nobody knows whether submission 1 of mail happened: Reset: connection reset by peer. Its code has ended." in told
    assert re.search(r"Lookup find_mail found it at the provider. mail happened. It had been unknown for \S+ ", told)
    data = worked.json("why", worked.effect("inv_cut", "mail")["key"])["effect"]
    assert data["settled_by"]["how"] == "lookup:find_mail" and data["unknown_since"] is None


def test_an_open_unknown_says_what_to_do_next(worked: Office) -> None:
    post = worked.effect("inv_cut", "post")
    for of in (post["key"], "inv_cut"):
        told = story(worked, of)
        assert "Next: a person's verdict: did it happen? Look at the provider" in told
        assert f"semel resolve {post['key'][-8:]} --by YOU --not-found" in told
    assert post["settled_by"] is None and post["unknown_since"] and post["needs"]["who"] == "person"


def test_drift_shows_only_what_differs(worked: Office) -> None:
    told = story(worked, "inv_r")
    assert "Drift: attempt 2 asks for mail in other words; it is not sent again, the recorded result is given." in told
    assert 'recorded {"text": "attempt 1"} asked {"text": "attempt 2"}' in told
    assert "drift asked for in other words 1 time" in story(worked, worked.effect("inv_r", "mail")["key"])


def test_a_refused_call_is_told_with_its_reason(worked: Office) -> None:
    told = story(worked, "inv_p")
    assert "Refused (already_done): attempt 1 asks for mail, but it was done already, in other words." in told
    assert 'recorded {"text": "first"} asked {"text": "second"}' in told


def test_a_proof_that_nothing_happened_is_told(worked: Office) -> None:
    told = story(worked, "inv_g")
    assert "Proof that submission 1 of sign did nothing: the customer has no signature. That is final." in told
    assert "It is due again" not in told, "the last failure is followed by no attempt"


def test_a_key_of_the_tenant_names_the_tasks_that_asked(worked: Office) -> None:
    account = worked.effect("inv_1", "open_account")
    owner = next(task for task in worked.json("tasks")["tasks"] if task["id"] == account["submissions"][0]["task"])
    named = f"Attempt 1 of bill {owner['key']} [{owner['id'][-8:]}] asks for open_account"
    other = {"inv_1": "inv_cut", "inv_cut": "inv_1"}[owner["key"]]
    assert named in story(worked, account["key"]) and named in story(worked, other)
    assert "Attempt 1 asks for open_account" in story(worked, owner["key"])


def test_times_are_local_with_what_has_elapsed(worked: Office) -> None:
    shown = worked.look("why", "inv_1").stdout
    lines = [line for line in shown.splitlines() if re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line)]
    assert len(lines) > 8 and lines[0][13:21].strip() == "+0 ms"
    assert re.search(r"^\w+day \d{4}-\d\d-\d\d, local times \(UTC[+-]\d\d:\d\d\)$", shown, re.MULTILINE)
    elapsed = [line["elapsed_ms"] for line in worked.json("why", "inv_1")["story"]]
    assert elapsed == sorted(elapsed)


def test_long_values_take_one_line(office: Office) -> None:
    office.semel("enqueue", "clerk:app", "count", "7", "x" * 5000)
    key = office.task(next(task["key"] for task in office.json("tasks")["tasks"] if task["kind"] == "count"))["key"]
    for command in ("why", "show"):
        shown = office.look(command, key).stdout
        assert max(map(len, shown.splitlines())) <= 80 and "xxx…" in shown and len(shown) < 3000
    assert "x" * 5000 in office.look("why", key, "--json").stdout


def test_a_killed_worker_is_in_the_story(fresh: Office) -> None:
    fresh.semel("enqueue", "clerk:app", "think", "inv_k")
    worker = fresh.start("worker", "clerk:app")
    until(lambda: any(line.startswith("ponder") for line in fresh.world), "the effect acts")
    session = fresh.json("show", "inv_k")["delivery"]["session"]
    pid = fresh.python(f"import clerk; print(clerk.app.runtime.desk.store.session({session!r}).pid); clerk.app.close()").strip()
    fresh.python(f"import os; os.kill({pid}, 9)")
    until(lambda: fresh.task("inv_k")["delivery"] == "blocked", "the task is taken back, and asks a person")
    worker.terminate()
    assert worker.wait(timeout=60) == 0
    told = story(fresh, fresh.effect("inv_k", "ponder")["key"])
    assert f"Attempt 1 began in session {session[-8:]} (pid {pid} on " in told
    assert "Nobody knows whether submission 1 of ponder happened: session fenced (dead). Its sender is dead." in told
    assert "Attempt 1 lost its worker, whose process is proved to be gone. Session " in told
    assert "Attempt 2 ended, and the task waits for a person" in told
    assert "CRASH" not in told and "1 crash" in flat(fresh.look("show", "inv_k").stdout)


def test_the_verdict_is_repeated_where_it_has_scrolled_away(worked: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    for height, times in ((0, 1), (200, 1), (12, 2)):
        monkeypatch.setattr(why.out, "height", lambda height=height: height)
        assert worked.look("why", "inv_1").stdout.count("DONE  bill inv_1 succeeded") == times


# --- of any event -----------------------------------------------------------------------------------------------------

KEY, TASK = "sml_" + "k" * 32, "t" * 36
ALL: list[j.Happened] = [
    j.Enqueued(TASK, "bill", "inv_1", {"a": 1}, due=99_000), j.Claimed(1, 7, "s1"), j.Stepped("draft:1", "draft", "text"),
    j.Joined(KEY, "charge"), j.Intended(KEY, 1, "charge", TASK, 1, 7, "s1", {"a": 1}, "d", unfenced="process"),
    j.Unfenced(KEY, 1, "child"), j.Lost(KEY, 1, "no answer within 30 s"), j.SenderGone(KEY, 1, True),
    j.Late(KEY, 1, "returned", "id_1"), j.Found(KEY, "unavailable", "lookup:find", reason="503"),
    j.Found(KEY, "conflict", "lookup:find", reason="another's"), j.Intended(KEY, 2, "charge", TASK, 1, 7, "s1", again=True),
    j.Disproved(KEY, 2, "refused", True, {"code": 1}), j.Answered(KEY, "looked", True), j.Watched(KEY, 1),
    j.Answered(KEY, "looked again"), j.Found(KEY, "not_found", "person"),
    j.Confirmed(KEY, 1, None, "too large", "evidence"), j.Drifted(KEY, {"a": 2}, "e", 1),
    j.Declined(KEY, "intent_changed", "charge", {"a": 3}, 1), j.Suspended("unknown", KEY), j.Parked("unknown", 60_000),
    j.Failed("ValueError: no", 60_000), j.LeaseLost("s1", "watched", 60_000), j.Blocked("ask"), j.Unblocked("found by ann"),
    j.Ending("cancelled", "by ann"), j.Cancelled("by ann"), j.DeadLettered("failed"), j.Replayed("by ann", "draft"),
    j.Replayed("by ann", "draft", at_most={"charge": 2}), j.Purged("by ann: too old"),
    j.Finished("done"), j.Waits("w", "paid", 90_000), j.GaveUp("w"), j.Signalled("paid", {"a": 1}),
    j.Assumed("sml_a", 1, "mail", TASK, 1, 7, 5000, {"a": 1}, "d"), j.EpochBegan(9, "i", 8, 5000, "restored"),
    j.EpochWatched(9), j.WindowClosed(9, "all is back"), j.DoubtLifted(9, "looked through"), j.Void(),
    j.Paused("queue", "billing", "the bank is down"), j.Resumed("all"),
    j.Asked("sml_b", "wire", TASK, 1, 2, {"a": 1}, "d"), j.Drifted("sml_b", {"a": 2}, "e", 1),
    j.Approved("sml_b", "ann", "f", "agreed", {"a": 3}, 99_000), j.Asked("sml_b", "wire", TASK, 2),
    j.Approved("sml_e", "ann", "f", "planned", {"a": 3}, name="wire"), j.Denied("sml_e", "bob", "not yet"),
    j.Approved("sml_b", "ann", "f", early=True),
    j.Denied("sml_b", "bob", "not ours"), j.Renewed("sml_b", "ann", 1, "it is ours after all"),
    j.Spent(1, "0.03", 1200),
    j.Reversed(KEY, "bob", 9, "confirmed", "another receipt", (1,)),
    j.Bound({"account": "alice"}), j.Bound({"account": "bob"}, "ann"),
    j.Mismatched("account is bound to 'alice', and 'bob' is observed", "sml_b", "wire", {"account": "bob"}),
    j.Declared("d", {}, {}), j.Declared("d", {}, {}, True, "looked through"),
    j.Pruned(9, "00" * 32, "a year is over", task={"id": TASK, "attempt": 2}),
    j.Pruned(1, "00" * 32, shared={"effect": {"key": "sml_c", "name": "mail", "digest": "d", "confirmed": True}}),
]  # fmt: skip


def rows(events: Sequence[j.Happened], actor: str = "person:ann") -> list[Row]:
    made = [j.seal((event,), tenant="default", stream=TASK, seq=n, previous=j.GENESIS, actor=actor, token=7, at=1000 * n, id="x")
            for n, event in enumerate(events)]  # fmt: skip
    return [row for (row,) in made]


def told(events: Sequence[j.Happened]) -> list[Line]:
    teller = Teller(lambda id: f"session {id}", lambda id: f"task {id}", TASK)
    return [teller.tell(row) for row in rows(events)]


def test_every_kind_of_event_has_its_sentence() -> None:
    assert {event.kind for event in ALL} == set(j.KINDS), "add the new event to ALL, and its sentence to tell.py"
    for line in told(ALL):
        assert line.text[:1].isalnum() and line.text.endswith((".", "!", "?")) and ".." not in line.text, line
        assert "  " not in line.text and "{" not in line.text
    texts = [line.text for line in told(ALL)]
    assert len(set(texts)) == len(texts)


def one(*events: j.Happened) -> str:
    return told(events)[-1].text


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (j.Late(KEY, 1, "not_done", None, "refused"), "reports that nothing happened, which is kept as evidence: refused."),
        (j.Late(KEY, 1, "raised", None, "OSError: x"), "ended, and can act no more: OSError: x."),
        (j.Spent(2, "0.03", 1200), "Attempt 2 has spent 0.03 usd and 1200 tokens."),
        (j.Spent(2, "0", 7), "Attempt 2 has spent 7 tokens."), (j.Spent(2, "1.50"), "Attempt 2 has spent 1.50 usd."),
        (j.Lost(KEY, 1, "gone", fenced=True), "Its sender is fenced."),
        (j.Lost(KEY, 1, "gone", fenced=True, dead=True), "Its sender is dead."),
        (j.Lost(KEY, 1, "slow"), "Its code may still be running."),
        (j.Lost(KEY, 1, "cut", ended=True), "Its code has ended."),
        (j.Confirmed(KEY, 1, "r", how="already_done"), "exists already, under its own key: it happened."),
        (j.Found(KEY, "confirmed", "person:bob", "r", "seen it"), "bob says that it happened: seen it. charge happened."),
        (j.Found(KEY, "not_found", "lookup:find"), "Lookup find did not find it, and settle was over: charge did not happen."),
    ],
)  # fmt: skip
def test_what_an_outcome_proves_is_said(event: j.Happened, words: str) -> None:
    assert words in one(j.Intended(KEY, 1, "charge", TASK, 1, 7, "s1", {"a": 1}, "d"), event)


@pytest.mark.parametrize(
    ("events", "how", "reason"),
    [
        ([j.Confirmed(KEY, 1, "r")], "returned", ""),
        ([j.Lost(KEY, 1, "cut"), j.Late(KEY, 1, "returned", "r"), j.Confirmed(KEY, 1, "r", how="evidence")], "evidence", ""),
        ([j.Disproved(KEY, 1, "refused")], "not_done", "refused"),
        ([j.Lost(KEY, 1, "cut"), j.Found(KEY, "confirmed", "lookup:find", "r")], "lookup:find", ""),
        ([j.Lost(KEY, 1, "cut"), j.Found(KEY, "confirmed", "person:bob", "r", "seen")], "person:bob", "seen"),
        ([j.Lost(KEY, 1, "cut"), j.Answered(KEY, "not there"), j.Found(KEY, "not_found", "person")], "person:ann", "not there"),
        ([j.Lost(KEY, 1, "cut"), j.Found(KEY, "conflict", "person:bob", None, "another")], None, None),
    ],
)  # fmt: skip
def test_what_settled_it_is_kept(events: list[j.Happened], how: str | None, reason: str | None) -> None:
    teller = Teller(str, str, TASK)
    for row in rows([j.Intended(KEY, 1, "charge", TASK, 1, 7, "s1", {"a": 1}, "d"), *events]):
        teller.tell(row)
    settled = teller.past[KEY].settled
    assert (settled.how, settled.reason) == (how, reason) if settled is not None else how is None
    assert why.settled_words(settled)


def test_the_time_in_the_unknown_adds_up_over_submissions() -> None:
    teller = Teller(str, str, TASK)
    for row in rows([
        j.Intended(KEY, 1, "charge", TASK, 1, 7, "s1", {"a": 1}, "d"), j.Lost(KEY, 1, "cut"), j.Answered(KEY),
        j.Found(KEY, "not_found", "person"), j.Intended(KEY, 2, "charge", TASK, 1, 7, "s1", {"a": 1}, "d"), j.Lost(KEY, 2, "cut"),
        j.Intended(KEY, 3, "charge", TASK, 1, 7, "s1", again=True), j.Confirmed(KEY, 3, "r"),
    ]):  # fmt: skip
        teller.tell(row)
    assert teller.past[KEY].unknown_ms == 2000 + 2000 and teller.past[KEY].since == 0


def test_attempts_that_only_looked_are_told_once() -> None:
    idle: list[j.Happened] = [e for n in range(1, 31) for e in (j.Claimed(n, n, "s1"), j.Suspended("busy"), j.Parked("busy", 0))]
    kept = list(why.condensed(told([j.Enqueued(TASK, "bill", "k", None), *idle, j.Claimed(31, 31, "s1"), j.Finished(1)])))
    assert [line.text.partition(".")[0] for line in kept] == [
        "ann asked for bill with the key k", "Attempt 1 began in session s1, with token 1",
        "Attempt 1 was given back, without fault: busy", "Attempts 2 to 30 went the same way",
        "Attempt 31 began in session s1, with token 31", "Attempt 31 finished the task",
    ]  # fmt: skip


def test_many_steps_are_told_in_short() -> None:
    steps: list[j.Happened] = [j.Stepped(f"s:{n}", f"s{n}", n) for n in range(100)]
    kept = list(why.condensed(told([j.Claimed(1, 1, "s1"), *steps, j.Finished(1)])))
    assert [line.text for line in kept[1:-1]] == [
        "Step s0 is on record.", "Step s1 is on record.", "97 more steps are on record.", "Step s99 is on record.",
    ]  # fmt: skip


def test_what_was_spent_again_and_again_is_told_in_short() -> None:
    spent: list[j.Happened] = [x for n in range(50) for x in (j.Spent(1, "0.01"), j.Stepped(f"s:{n}", f"s{n}", n))]
    kept = list(why.condensed(told([j.Claimed(1, 1, "s1"), *spent, j.Finished(1)])))
    assert [line.text for line in kept[1:-1]] == [
        "Attempt 1 has spent 0.01 usd.", "Step s0 is on record.", "97 more notes of steps and of what was spent are on record.",
        "Step s49 is on record.",
    ]  # fmt: skip


def test_only_differing_arguments_are_shown() -> None:
    def difference(a: Any, b: Any) -> dict[str, Any]:
        return dict(tell.difference(a, b))

    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 3}) == {"recorded": {"b": 2}, "asked": {"b": 3}}
    assert difference({"a": 1}, {"a": 1, "c": None}) == {"recorded": {"c": None}, "asked": {"c": None}}
    assert difference(None, {"a": 1}) == {"asked": {"a": 1}}
