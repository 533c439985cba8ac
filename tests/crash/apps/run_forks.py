"""`run_forks.py`: an app in use, a fork that uses it, and the parent that goes on. Prints the ids of what each enqueued."""

import os
import sys

from agent import app, sync_work


def one(ref: str) -> str:
    """Enqueue a mail; the task's id."""
    return sync_work.enqueue("mail", ref).id


if __name__ == "__main__":
    told = [one("before")]
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writes, one("child").encode())
        app.close()
        os._exit(0)
    told.append(one("parent"))
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told += [os.read(reads, 100).decode(), one("after")]
    assert [app.tasks.get(id).key for id in told] == ["before", "parent", "child", "after"] or print(told)
    print(*told)
    app.close()
    sys.exit(ended)
