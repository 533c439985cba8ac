"""`semel correct`: what a correction has brought about. The machine judges it."""

from __future__ import annotations

from semel.cli import output as out
from semel.cli.decide import Subject
from semel.engine.ledger import Desk
from semel.model import Delivery, Json


def as_data(desk: Desk, before: Subject, after: Subject) -> dict[str, Json]:
    """For programs. reverses: the row of the verdict that was taken back."""
    task = desk.store.task(after.found.tenant, after.effect.task)
    return {
        "key": after.found.id, "tenant": after.found.tenant, "name": after.effect.name, "state": str(after.effect.state),
        "reverses": before.effect.word.seq if before.effect.word else None, "seen": before.version, "version": after.version,
        "delivery": task.delivery if task else None, "execution": task.execution if task else None,
    }  # fmt: skip


def words(desk: Desk, before: Subject, after: Subject, by: str) -> list[str]:
    """For people: what has become of it, and what comes next."""
    name, word = after.effect.name, before.effect.word
    said = "happened" if word is not None and word.verdict == "confirmed" else "did not happen"
    key = out.short(after.found.id)
    sentences = [
        f"On record: {by} takes back that {name} {said}. The verdict stays where it stands, this entry reverses it, and {name} "
        f"is unknown again."
    ]
    task = desk.store.task(after.found.tenant, after.effect.task)
    if task is not None and task.delivery in (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED):
        return [
            *sentences,
            f"Its task has ended ({task.delivery}), and stays so: give the true verdict (semel resolve {key} ... --by YOU). If "
            f"it did not happen and still must, replay the task then: semel replay {out.short(task.task)} --by YOU",
        ]
    return [*sentences, "Its task starts nothing else until it is settled: by its recovery, or by you (semel resolve)."]
