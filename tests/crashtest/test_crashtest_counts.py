"""What is counted at the resource, and what the judge makes of it: nothing that nobody counts is taken for done once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from semel.errors import Misuse
from semel.model import EffectState, EffectView, NotFound
from semel.testing.crashtest.points import Boundary, Point
from semel.testing.crashtest.probes import Probe, Sandbox
from semel.testing.crashtest.runner import Crashtest, Options, uncounted
from semel.testing.crashtest.world import Stuck, World


def effect(name: str, key: str, to: str, state: EffectState = EffectState.CONFIRMED) -> EffectView:
    return EffectView(key, "t", "task", name, state, {"name": to}, None, 1, "", 1, (), "", 1, 1)


class Names:
    """A resource that knows no keys, and its probe."""

    def __init__(self, **there: int) -> None:
        self.there = Counter(there)

    def count(self, effect: str, key: str, arguments: dict[str, Any]) -> int:
        return self.there[arguments["name"]]


def world() -> Any:
    told: list[str] = []
    return SimpleNamespace(
        url="sqlite:///run.db", duplicates="", told=told, lost=True, gone=list, tasks=list, broken=str, denied=lambda key: ""
    )


def learnt(resource: Any, *effects: EffectView) -> Probe:
    probe = Probe(resource.count)
    for one in effects:
        resource.there[one.args["name"]] += 1  # the dry run
    probe.learn(world(), [Boundary("effect", one.name, n, one.key, one.args) for n, one in enumerate(effects, 1)])
    return probe


def judged(counts: Any, there: Any, effects: list[EffectView], counted: dict[str, int]) -> tuple[str, str]:
    kit: Any = SimpleNamespace(counts=counts)
    test = Crashtest(kit, Options(), Path(), stores=None, dry=Counter(one.name for one in effects))  # type: ignore[arg-type]
    return test.judge(there, Point("killed", "killed_before"), effects, counted, "")


def verdict(resource: Any, effects: list[EffectView], *sent: str) -> str:
    """Of a run in which these were sent."""
    probe, there = learnt(resource, *effects), world()
    assert probe.alone
    probe.begin(there)
    resource.there.update(sent)
    return judged(probe, there, effects, probe.count(there, effects))[0]


A, B = effect("mail", "k1", "a"), effect("mail", "k2", "b")


def test_what_was_there_is_subtracted_for_each_set_of_arguments() -> None:
    """Once each passes; twice is a duplicate, whatever is there of the other."""
    assert verdict(Names(a=20), [A, B], "a", "b") == "pass"
    assert verdict(Names(b=1), [A, B], "a", "b") == "pass"
    assert verdict(Names(a=20), [A, B], "a", "b", "b") == "DUPLICATE"
    assert verdict(Names(b=20), [A, B], "a", "a", "b") == "DUPLICATE"
    assert verdict(Names(a=20), [A, B], "a") == "LOSS"


def test_keys_of_the_same_arguments_share_one_count() -> None:
    twin = effect("mail", "k3", "a")
    assert verdict(Names(a=5), [A, twin], "a", "a") == "pass"
    assert verdict(Names(a=5), [A, twin], "a", "a", "a") == "DUPLICATE"
    assert verdict(Names(a=5), [A, twin], "a") == "LOSS"


def test_fewer_than_before_the_run_is_no_count() -> None:
    resource = Names(a=20)
    probe, there = learnt(resource, A), world()
    probe.begin(there)
    resource.there["a"] -= 1
    with pytest.raises(Misuse, match=r"found 21 of mail before a run, and 20 after it.*count by key"):
        probe.count(there, [A])


def test_what_has_other_arguments_than_the_dry_runs_cannot_be_counted_without_keys() -> None:
    probe, there = learnt(Names(), A), world()
    probe.begin(there)
    counted = probe.count(there, [A, B])
    assert counted == {"k1": 0}
    assert uncounted([A, B], counted) == ["mail"]
    assert "count by key" in probe.unable("mail", "")


def test_a_probe_may_count_one_effect_by_key_and_another_not() -> None:
    sent = Counter({"k9": 1})
    resource: Any = Names(a=3)
    by_name = resource.count
    resource.count = lambda effect, key, arguments: by_name(effect, key, arguments) if effect == "mail" else sent[key]
    charge, again = effect("charge", "k9", "z"), effect("charge", "k8", "z")
    probe, there = learnt(resource, A, charge), world()
    probe.begin(there)
    assert probe.count(there, [A, charge, again]) == {"k1": 0, "k9": 1, "k8": 0}


def test_what_is_confirmed_and_not_counted_never_passes() -> None:
    found, why = judged(Sandbox(), world(), [A], {})
    assert found == "LOSS"
    assert "nobody can count it" in why
    assert judged(Sandbox(), world(), [A], {"k1": 1})[0] == "pass"


def test_the_sandbox_says_which_variable_the_app_did_not_read() -> None:
    told = Sandbox().unable("charge", "PROVIDRE")
    assert "charge happened, and never reached the sandbox provider at $PROVIDRE" in told
    assert "--sandbox-env NAME" in told


def test_a_person_never_says_not_found_of_what_nobody_counts() -> None:
    said: list[Any] = []
    kit = SimpleNamespace(results={})
    there: Any = SimpleNamespace(
        counted=dict, kit=kit, number=lambda effect: 1, told=[],
        app=SimpleNamespace(review=SimpleNamespace(resolve=lambda key, verdict, **more: said.append(verdict))),
    )  # fmt: skip
    unknown = effect("mail", "k1", "a", EffectState.AMBIGUOUS)
    with pytest.raises(Stuck, match="nobody counts it"):
        World._tell(there, unknown)
    assert said == []
    there.counted = lambda: {"k1": 0}
    World._tell(there, unknown)
    assert said == [NotFound()]


def test_a_reply_that_was_not_lost_shows_nothing() -> None:
    there = world()
    there.lost = False
    found, why = judged(Sandbox(), there, [A], {"k1": 1})
    assert found == "not shown"
    assert "HTTP/1" in why
    assert judged(Sandbox(), there, [A], {"k1": 2})[0] == "DUPLICATE"


def test_what_a_restore_has_made_the_record_forget_is_counted_too() -> None:
    """Done under one key, forgotten, and done again under another."""
    was, now = replace(A, state=EffectState.AMBIGUOUS), effect("mail", "k4", "c")
    there = world()
    there.gone = lambda: [was]
    kit: Any = SimpleNamespace(counts=Sandbox())
    test = Crashtest(kit, Options(), Path(), stores=None, dry=Counter(mail=1))  # type: ignore[arg-type]
    point = Point("store restored to before it", "restored")
    found, why = test.judge(there, point, [now], {"k1": 1, "k4": 1}, "")
    assert found == "DUPLICATE"
    assert "one of them from before the store was restored" in why
    assert test.judge(there, point, [now], {"k1": 2, "k4": 1}, "")[0] == "DUPLICATE"
    assert test.judge(there, point, [now], {"k1": 0, "k4": 1}, "")[0] == "pass", "it had not been done"


def test_who_is_forgotten_has_the_last_claim_on_what_nothing_tells_apart() -> None:
    was, now = replace(A, state=EffectState.AMBIGUOUS, since=0), effect("mail", "k4", "a")
    probe, there = learnt(Names(), A), world()
    probe.begin(there)
    probe.fn.__self__.there["a"] += 1  # type: ignore[attr-defined]
    assert probe.count(there, [was, now]) == {"k4": 1, "k1": 0}
