"""`semel verify` finds what somebody did to the file, says it by name, and calls a store at work whole."""

from __future__ import annotations

import json

import pytest
from cli_office import Office, until

TAMPER = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
    db.execute(f"DROP TRIGGER {name}")
db.execute(sys.argv[2])
assert db.total_changes() > 0
db.close()
"""
OF_1 = "(SELECT task FROM task_key WHERE key = 'inv_1')"
LATER = (
    "INSERT INTO ready (queue, kind, rank, due, tenant, task) SELECT queue, kind, 0, 1, tenant, task FROM task "
    "WHERE key = 'inv_1'"
)  # fmt: skip


def test_a_store_after_a_days_work_is_whole(worked: Office) -> None:
    done = worked.look("verify")
    assert done.stdout.startswith("WHOLE  Every chain is intact: ")
    found = worked.json("verify")
    assert found["whole"] is True and found["wrong"] == [] and found["note"] == ""
    assert found["tables"] == {"task": 8, "ready": 1, "inflight": 0, "effect": 11, "unknown": 1, "task_key": 8}
    assert found["streams"] == 10  # eight tasks, the tenant's one key, and what the worker declares


@pytest.mark.parametrize(
    ("sql", "what", "words"),
    [
        (
            f"UPDATE journal SET body = replace(body, '1200', '9') WHERE stream = {OF_1} AND body LIKE '%1200%' AND seq > 1",
            "changed", "(intended) was changed, or follows another row than it was written after",
        ),
        (f"UPDATE journal SET at = at + 1 WHERE stream = {OF_1} AND seq = 2", "changed", "row 2 (claimed) was changed"),
        (f"UPDATE journal SET actor = 'person:eve' WHERE stream = {OF_1} AND seq = 1", "changed", "row 1 (enqueued) was changed"),
        (f"DELETE FROM journal WHERE stream = {OF_1} AND seq = 3", "removed", "row 3 is missing (the next is 4)"),
        (
            f"DELETE FROM journal WHERE stream = {OF_1} AND kind = 'finished'",
            "table", "delivery is 'acknowledged', the journal says 'leased'",
        ),
        (f"DELETE FROM journal WHERE stream = {OF_1}", "table", "table task: no journal tells of this task"),
        (f"UPDATE journal SET kind = 'feasted' WHERE stream = {OF_1} AND seq = 3", "fold", "an event 'feasted'"),
        (f"UPDATE journal SET body = 'x' WHERE stream = {OF_1} AND seq = 3", "fold", "the journal cannot be read back"),
        (
            "UPDATE effect SET state = 'not_attempted' WHERE name = 'charge'",
            "table", "state is 'not_attempted', the journal says 'confirmed'",
        ),
        ("DELETE FROM effect WHERE name = 'sign'", "table", "the row is missing"),
        ("INSERT INTO effect VALUES ('default', 'x', 't', 't', 'theft', 'confirmed', 1)", "table", "tells of this theft"),
        ("UPDATE task SET attempt = 9 WHERE key = 'inv_r'", "table", "attempt is 9, the journal says 2"),
        ("DELETE FROM task WHERE key = 'inv_r'", "table", "table task: the row is missing"),
        ("DELETE FROM ready", "table", "the row by which a worker would find the task is missing"),
        (LATER, "size", "table ready has 2 rows, the journal tells of 1"),
        ("INSERT INTO inflight VALUES ('s', 'default', 't')", "size", "table inflight has 1 rows, the journal tells of 0"),
        ("DELETE FROM unknown", "table", "is unknown, and the queue does not say so"),
        ("INSERT INTO unknown VALUES ('default', 'sml_x', 't', 'theft', 1)", "table", "table unknown: this theft is not unknown"),
        (
            f"DELETE FROM journal WHERE stream = {OF_1} AND kind = 'finished'", "truncated",
            "and its table knows row",
        ),
        ("INSERT INTO task_key VALUES ('default', 'bill', 'inv_9', 't')", "size", "table task_key has 9 rows"),
        ("UPDATE task_key SET task = 'another' WHERE key = 'inv_r'", "key", "the key 'inv_r' of reword belongs to another"),
    ],
)  # fmt: skip
def test_what_was_done_to_the_file_is_named(office: Office, sql: str, what: str, words: str) -> None:
    office.python(TAMPER, str(office.store), sql)
    done = office.look("verify", code=1)
    assert done.stdout.startswith("BROKEN  ")
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    found = office.look("verify", "--json", code=1)
    wrong = json.loads(found.stdout)["wrong"]
    assert any(one["what"] == what and words in one["text"] for one in wrong), wrong


def test_a_damaged_story_is_an_error_and_no_traceback(office: Office) -> None:
    office.python(TAMPER, str(office.store), f"UPDATE journal SET body = 'x' WHERE stream = {OF_1} AND seq = 3")
    for command in ("why", "show"):
        done = office.look(command, "inv_1", code=1)
        assert "cannot be read from its journal" in done.stderr and "check the store: semel verify" in done.stderr


def test_a_store_at_work_is_not_called_broken(fresh: Office) -> None:
    program = (
        "import clerk, itertools, time\n"
        "for n in itertools.count():\n"
        "    clerk.count.using(key=f'k{n}').enqueue(n)\n"
        "    clerk.reword.enqueue(f'w{n}')\n"
        "    time.sleep(0.02)\n"  # steady, and not so fast that a busy machine is filled by it
    )
    fresh.python("import clerk; clerk.count.enqueue(0); clerk.app.close()")
    fresh.start("worker", "clerk:app", "--concurrency", "4")
    writer = fresh.start_python(program)
    until(lambda: len(fresh.world) > 20, "it is at work")
    for _ in range(2):
        fresh.semel("verify")
    assert writer.poll() is None
    writer.kill()
    writer.wait(timeout=30)
    fresh.started[0].terminate()
    assert fresh.started[0].wait(timeout=60) == 0
    assert fresh.json("verify")["note"] == "" and fresh.json("verify")["rows"] > 200
