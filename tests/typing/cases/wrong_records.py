"""Each numbered line must be an error in both checkers: at run time nothing keeps a record from being changed."""

from semel.machine.commands import Lose
from semel.machine.effects import Decision, Effect
from semel.machine.journal import Row
from semel.machine.tasks import Task
from semel.store.contract import Change


def f(task: Task, effect: Effect, decision: Decision, command: Lose, row: Row, change: Change) -> None:
    task.version += 1  # 1
    effect.confirmed = True  # 2
    decision.events = ()  # 3
    command.ended = False  # 4
    row.body = "{}"  # 5
    change.parts = ()  # 6
    task.unknwon = frozenset()  # 7 no field
