"""Delivered twice, accepted once: a webhook that is sent again, and a cron job that fires on two machines.

The task's key comes from what the work *is* (the delivery's id, the day), and never from who asked or when. So the same
work asked for again is the same task, however many handlers, processes and retries ask for it.

    python examples/webhook_twice.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import semel
from semel.testing.provider import post

folder = Path(tempfile.mkdtemp(prefix="semel-example-"))
app = semel.App(f"sqlite:///{folder}/agent.db")


@app.task(intent=("delivery_id",))
def triage(delivery_id: str, issue: int) -> str:
    """What the webhook asks for. Its key is the delivery's id, which the sender repeats when it sends again."""
    return f"issue {issue} was triaged for {delivery_id}"


@app.task()
def nightly_report(day: str) -> str:
    """What the cron job asks for. It has no intent: whoever enqueues it names the key."""
    return f"the report of {day}"


class Webhook(BaseHTTPRequestHandler):
    """Answers 200 once the task is durable; until then the sender had better send again."""

    def do_POST(self) -> None:
        delivery = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ref = triage.enqueue(delivery["id"], delivery["issue"])
        answer = json.dumps({"task": ref.id}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def deliver_twice() -> set[str]:
    """The sender is impatient: it delivers the same event eight times, at once. The ids of the tasks it is told."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/hook"
    with ThreadPoolExecutor(8) as senders:
        answers = list(senders.map(lambda _: post(url, {"id": "d-7894", "issue": 42}), range(8)))
    server.shutdown()
    server.server_close()
    return {answer["task"] for answer in answers}


CRON = """
import sys, semel
app = semel.App(sys.argv[1])

@app.task()
def nightly_report(day: str) -> str: ...

print(nightly_report.using(key=f"report-{sys.argv[2]}").enqueue(sys.argv[2]).id)
"""


def fire_twice() -> set[str]:
    """Two machines believe that they are the one that runs cron. (On one machine here; the store is one file.)"""
    command = [sys.executable, "-c", CRON, f"sqlite:///{folder}/agent.db", "2031-05-01"]
    crons = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return {cron.communicate()[0].strip() for cron in crons}


def main() -> None:
    delivered, fired = deliver_twice(), fire_twice()
    print(f"8 deliveries, {len(delivered)} task; 2 cron jobs, {len(fired)} task")
    app.run_worker(until_idle=True)
    for task in app.tasks.list():
        print(f"{task.kind} {task.key}: {task.execution}, {task.attempt} attempt; {task.ref.result()}")


if __name__ == "__main__":
    main()
