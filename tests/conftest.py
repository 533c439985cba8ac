"""PostgreSQL for whichever tests need one: one server for the whole run, one database for each process of the run.

And what a search has measured, printed at the end of the run (`measured`). What only PostgreSQL's tests need is imported
when they ask for it: each removal of a guard (tests/sabotage) is a run of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

MEASURED = "measured"


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """`measured("62,311 states, depth 14, 8.1 s")`: a line that the run prints at its end, beside the test's name."""
    return lambda line: record_property(MEASURED, line)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the searches of this run covered, in whichever process they ran."""
    told = [
        (report.nodeid, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == MEASURED
    ]
    if told:
        terminalreporter.section("measured")
        for test, line in sorted(told):
            terminalreporter.write_line(f"{test.rpartition('/')[2]}: {line}")


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Witnesses of databases lie in a folder of the test run, here and in every process that it starts."""
    folder = tmp_path_factory.getbasetemp() / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A superuser's URL of a server for the whole run. It is shared: leave its settings and its other databases alone."""
    from pgserver import server_of_the_run

    with server_of_the_run(tmp_path_factory.getbasetemp()) as url:
        yield url


@pytest.fixture(scope="session")
def make_database(server_url: str) -> Iterator[Callable[[str], str]]:
    """Makes a database for this test process, and gives its URL; it is dropped at the end."""
    from semel.testing import postgres

    with contextlib.ExitStack() as made:

        def make(purpose: str) -> str:
            return made.enter_context(postgres.database(server_url, f"semel_{purpose}_{os.getpid()}"))

        yield make


@pytest.fixture(scope="session")
def own_database(make_database: Callable[[str], str]) -> str:
    """The URL of a database that the tests of this process use one after the other."""
    return make_database("test")


@pytest.fixture
def empty_database(own_database: str) -> str:
    """The URL of a database without a schema, to which nobody is connected (making a database anew takes a second)."""
    import psycopg

    from pgserver import ALONE

    with psycopg.connect(own_database, autocommit=True) as admin:
        admin.execute(ALONE)
        admin.execute("DROP SCHEMA IF EXISTS semel CASCADE")
    return own_database


@pytest.fixture
def database(own_database: str) -> str:
    """The URL of a database of the test's own: its schema has been made, and its tables are empty."""
    from pgserver import emptied

    return emptied(own_database)
