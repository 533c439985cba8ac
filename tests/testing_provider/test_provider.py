"""The test provider, as its users meet it: a real process, real sockets, real SIGKILL."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel.testing.provider import Provider, ProviderError, get, post, put

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "provider.db"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """One for the tests that ask for their own actions only: starting a process takes a while."""
    with Provider.start(tmp_path_factory.mktemp("shared") / "provider.db") as running:
        yield running


@pytest.fixture
def provider(record: Path) -> Iterator[Provider]:
    with Provider.start(record) as running:
        yield running


def refused(status: int, call: Callable[[], object]) -> Any:
    with pytest.raises(ProviderError) as caught:
        call()
    assert caught.value.status == status, caught.value
    return caught.value.body


def raw(provider: Provider, method: str, path: str, body: str, **headers: str) -> http.client.HTTPResponse:
    """The whole answer, for what the plain helpers do not show."""
    connection = http.client.HTTPConnection(urlsplit(provider.url).netloc, timeout=5)
    connection.request(method, path, body.encode(), {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    connection.close()
    return response


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ------------------------------------------------------------------------------------------------------------- manners


def test_keyed_replays_the_first_answer(shared: Provider) -> None:
    url = f"{shared.url}/keyed/charge-1"
    first = post(url, {"cents": 5}, key="k1")
    assert post(url, {"cents": 5}, key="k1") == first
    assert shared.count("charge-1") == 1

    before = raw(shared, "POST", "/keyed/refund-1", '{"cents":5}', Idempotency_Key="k1")  # keys belong to one action
    again = raw(shared, "POST", "/keyed/refund-1", '{"cents":5}', Idempotency_Key="k1")
    assert before.getheader("Idempotent-Replayed") is None
    assert again.getheader("Idempotent-Replayed") == "true"
    assert (again.status, again.body) == (before.status, before.body)  # type: ignore[attr-defined]
    assert shared.count("refund-1") == 1


def test_keyed_refuses_other_bytes_under_the_same_key(shared: Provider) -> None:
    url = f"{shared.url}/keyed/charge-2"
    post(url, {"cents": 5}, key="k1")
    body = refused(422, lambda: post(url, {"cents": 6}, key="k1"))
    assert "different body" in body["error"]
    assert raw(shared, "POST", "/keyed/charge-2", '{"cents": 5}', Idempotency_Key="k1").status == 422  # a space
    assert shared.count("charge-2") == 1


def test_keyed_without_a_key_acts_each_time(shared: Provider) -> None:
    for _ in range(2):
        post(f"{shared.url}/keyed/charge-3", {})
    assert shared.count("charge-3") == 2


def test_keyed_says_409_while_the_first_is_being_worked_on(provider: Provider) -> None:
    url = f"{provider.url}/keyed/charge"
    provider.fault("late_act", seconds=0.8)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(post, url, {}, key="k")
        provider.wait_for_request("charge")
        assert "worked on" in refused(409, lambda: post(url, {}, key="k"))["error"]
        assert post(url, {}, key="other")["seq"] == 1  # only that key is held
    assert first.result()["seq"] == 2
    assert post(url, {}, key="k") == first.result()
    assert provider.count("charge", key="k") == 1


def test_concurrent_posts_of_one_key_act_once(provider: Provider) -> None:
    url, barrier = f"{provider.url}/keyed/charge", threading.Barrier(16)

    def send(_: int) -> str | int:
        barrier.wait()
        try:
            return str(post(url, {"cents": 5}, key="k")["id"])
        except ProviderError as error:
            return error.status

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(send, range(16)))
    (act,) = provider.acts("charge")
    assert act.id in answers
    assert answers <= {act.id, 409}
    assert len(provider.requests()) == 16


def test_keyed_forgets_after_the_retention(record: Path) -> None:
    with Provider.start(record, retention=timedelta(seconds=0.8)) as provider:
        url = f"{provider.url}/keyed/charge"
        first = post(url, {"cents": 5}, key="k")
        assert post(url, {"cents": 5}, key="k") == first
        time.sleep(0.85)
        second = post(url, {"cents": 6}, key="k")  # forgotten: even another body is a new act
        assert second["id"] != first["id"]
        assert post(url, {"cents": 6}, key="k") == second  # and that one is remembered
        assert [act.body["cents"] for act in provider.acts(key="k")] == [5, 6]


def test_looked_acts_each_time_and_can_be_asked(shared: Provider) -> None:
    url = f"{shared.url}/looked/mail-1"
    ids = [post(url, {"marker": "m 1&", "n": n}, key="same")["id"] for n in range(2)]
    post(url, {"marker": "m2"})
    assert [found["id"] for found in get(f"{url}?marker=m%201%26")] == ids
    assert get(f"{url}?marker=m%201%26")[1]["body"] == {"marker": "m 1&", "n": 1}
    assert len(get(url)) == 3
    assert get(f"{url}?marker=none") == []
    assert get(f"{shared.url}/looked/other?marker=m2") == []
    assert shared.count("mail-1", marker="m 1&") == 2


def test_looked_shows_an_act_after_the_lag(record: Path) -> None:
    with Provider.start(record, lag=timedelta(seconds=0.6)) as provider:
        url = f"{provider.url}/looked/mail"
        act = post(url, {"marker": "m"})
        assert get(f"{url}?marker=m") == []
        assert provider.count("mail") == 1  # the record has no lag
        until(lambda: get(f"{url}?marker=m") != [])
        assert time.time() >= act["at"] + 0.6


def test_opaque_acts_each_time_and_cannot_be_asked(shared: Provider) -> None:
    url = f"{shared.url}/opaque/fax-1"
    for _ in range(2):
        post(url, {"marker": "m"}, key="k")
    refused(405, lambda: get(f"{url}?marker=m"))
    assert shared.count("fax-1", manner="opaque") == 2


def test_named_creates_only(shared: Provider) -> None:
    url = f"{shared.url}/named/branch-1/fix%2F1"
    refused(404, lambda: get(url))
    assert put(url, {"at": "abc"})["name"] == "fix/1"
    assert "nothing was done" in refused(412, lambda: put(url, {"at": "def"}))["error"]
    assert get(url) == {"at": "abc"}
    put(f"{shared.url}/named/tag/fix%2F1", {})
    assert raw(shared, "PUT", "/named/branch-1/other", "{}").status == 201
    assert shared.count("branch-1") == 2


def test_concurrent_puts_of_one_name_act_once(shared: Provider) -> None:
    def send(n: int) -> int:
        return raw(shared, "PUT", "/named/branch-2/x", json.dumps({"n": n})).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(send, range(8))) == [201] + [412] * 7
    assert shared.count("branch-2") == 1


# -------------------------------------------------------------------------------------------------------------- record


def test_an_act_records_who_asked_for_what(provider: Provider) -> None:
    before = time.time()
    wide = 2**70  # tokens may outgrow 64 bits
    answer = post(f"{provider.url}/looked/mail", {"marker": "m", "to": "ä"}, key="k", token=wide)
    (act,) = provider.acts()
    assert (act.seq, act.id, act.manner, act.action, act.name) == (1, answer["id"], "looked", "mail", None)
    assert (act.key, act.marker, act.token, act.pid) == ("k", "m", wide, os.getpid())
    assert act.body == {"marker": "m", "to": "ä"}
    assert before <= act.at <= time.time()
    (request,) = provider.requests()
    assert (request.method, request.path, request.action) == ("POST", "/looked/mail", "mail")
    assert (request.key, request.token, request.fault) == ("k", wide, None)


def test_filters_and_counts(provider: Provider) -> None:
    post(f"{provider.url}/keyed/a", {}, key="1")
    post(f"{provider.url}/keyed/a", {}, key="2")
    post(f"{provider.url}/opaque/a", {"marker": "m"})
    put(f"{provider.url}/named/b/n", {})
    assert get(f"{provider.url}/_counts") == {"keyed/a": 2, "named/b": 1, "opaque/a": 1}
    assert provider.count() == 4
    assert provider.count("a") == 3
    assert provider.count("a", manner="keyed", key="2") == 1
    assert provider.count(marker="m") == 1
    assert "unknown filters" in refused(400, lambda: get(f"{provider.url}/_acts?acton=a"))["error"]
    refused(404, lambda: get(f"{provider.url}/_nothing"))
    assert get(f"{provider.url}/_health") == {"ok": True, "pid": provider.pid}


def test_nonsense_is_refused_recorded_and_never_acted_on(provider: Provider) -> None:
    def status(method: str, path: str, body: str = "{}", **headers: str) -> int:
        return raw(provider, method, path, body, **headers).status

    provider.fault("error_before")  # stays queued: nonsense uses up no fault
    assert status("POST", "/other/a") == 404
    assert status("POST", "/keyed") == status("POST", "/keyed/") == status("PUT", "/named/a") == 404
    assert status("PUT", "/keyed/a") == status("POST", "/named/a/b") == 405
    assert status("POST", "/opaque/a", "no json") == status("POST", "/opaque/a", "") == 400
    assert status("POST", "/looked/a", '{"marker":7}') == status("POST", "/looked/a", '{"marker":"\\ud800"}') == 400
    assert status("POST", "/opaque/a", Semel_Token="-1") == status("POST", "/opaque/a", Semel_Pid="x") == 400
    assert status("POST", "/opaque/a", Transfer_Encoding="chunked") == 411
    assert provider.count() == 0
    assert len(provider.requests()) == 12
    refused(503, lambda: post(f"{provider.url}/opaque/a", {}))


def test_half_a_request_is_no_request(shared: Provider) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(shared.url).port), timeout=5) as connection:
        connection.sendall(b"POST /opaque/fax-4 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert shared.count("fax-4") == 0


def test_a_connection_can_be_kept_alive(provider: Provider) -> None:
    connection = http.client.HTTPConnection(urlsplit(provider.url).netloc, timeout=5)
    for n in range(3):
        connection.request("POST", "/opaque/fax", f'{{"n":{n}}}'.encode())
        first = connection.sock
        assert json.loads(connection.getresponse().read())["seq"] == n + 1
        assert connection.sock is first
    connection.close()


# -------------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("manner", ["keyed", "looked", "opaque", "named"])
@pytest.mark.parametrize(
    ("kind", "outcome", "acts"),
    [
        ("cut_after", ConnectionResetError, 1),
        ("cut_before", ConnectionResetError, 0),
        ("error_after", 503, 1),
        ("error_before", 503, 0),
        ("hang", TimeoutError, 0),
        ("late", TimeoutError, 1),
        ("late_act", TimeoutError, 0),
    ],
)
def test_every_fault_on_every_manner(shared: Provider, kind: Any, manner: Any, outcome: Any, acts: int) -> None:
    action = f"{kind}-{manner}"

    def send(timeout: float = 10.0) -> dict[str, Any]:
        if manner == "named":
            return put(f"{shared.url}/named/{action}/x", {}, timeout=timeout)
        return post(f"{shared.url}/{manner}/{action}", {}, key="k", timeout=timeout)

    shared.fault(kind, seconds=0.5)
    if isinstance(outcome, int):
        refused(outcome, send)
    else:
        with pytest.raises(outcome):
            send(timeout=0.05 if outcome is TimeoutError else 10.0)
    shared.wait_for_request(action)
    assert shared.count(action) == acts
    assert [request.fault for request in shared.requests() if request.action == action] == [kind]
    if kind == "late_act":
        until(lambda: shared.count(action) == 1)  # although its client has gone
    elif manner == "named" and acts:
        refused(412, send)
    else:
        send()  # the fault is used up; a lost answer of the keyed manner is replayed
        assert shared.count(action) == (1 if manner == "keyed" else acts + 1)


def test_late_answers_late_but_acts_at_once(shared: Provider) -> None:
    shared.fault("late", seconds=0.5)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, f"{shared.url}/keyed/late-1", {}, key="k")
        until(lambda: shared.count("late-1") == 1)
        assert not answer.done()
        assert post(f"{shared.url}/keyed/late-1", {}, key="k")["id"] == answer.result()["id"]  # replayed meanwhile
    assert shared.count("late-1") == 1


def test_a_late_act_happens_when_its_sender_was_killed(shared: Provider) -> None:
    shared.fault("late_act", seconds=0.6)
    code = "import sys; from semel.testing.provider import post; post(sys.argv[1], {})"
    sender = subprocess.Popen(
        [sys.executable, "-c", code, f"{shared.url}/opaque/fax-2"], env={**os.environ, "PYTHONPATH": SOURCE}
    )
    shared.wait_for_request("fax-2")
    sender.kill()
    sender.wait()
    assert shared.count("fax-2") == 0
    until(lambda: shared.count("fax-2") == 1)
    assert shared.acts("fax-2")[0].pid == sender.pid


def test_a_cut_answer_has_not_a_single_byte(shared: Provider) -> None:
    shared.fault("cut_after")
    with socket.create_connection(("127.0.0.1", urlsplit(shared.url).port), timeout=5) as connection:
        connection.sendall(b"POST /opaque/fax-3 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        assert connection.recv(100) == b""
    assert shared.count("fax-3") == 1


def test_faults_hit_in_order_by_filter_and_times(provider: Provider) -> None:
    provider.fault("error_before", action="a", times=2)
    provider.fault("error_after", manner="opaque")
    provider.fault("error_after", manner="looked", asks=True)

    def hit(manner: str, action: str) -> bool:
        try:
            post(f"{provider.url}/{manner}/{action}", {})
        except ProviderError:
            return True
        return False

    assert not hit("looked", "b")  # fits none: the third is for reads
    refused(503, lambda: get(f"{provider.url}/looked/b"))
    assert len(get(f"{provider.url}/looked/b")) == 1
    assert [hit("opaque", "a") for _ in range(4)] == [True, True, True, False]
    assert provider.count("a") == 2
    faults = [request.fault for request in provider.requests() if request.action == "a"]
    assert faults == ["error_before", "error_before", "error_after", None]


def test_clear_and_malformed_faults(provider: Provider) -> None:
    provider.fault("error_before", times=100)
    assert get(f"{provider.url}/_faults")[0]["times"] == 100
    provider.clear()
    post(f"{provider.url}/opaque/a", {})
    bad = '[{"kind": "error_before"}, {"kind": "explode"}]'
    assert raw(provider, "POST", "/_faults", bad).status == 400
    assert get(f"{provider.url}/_faults") == []  # a list is taken whole or not at all
    for wrong in ({"times": 0}, {"seconds": -1.0}, {"probability": 2.0}, {"manner": "keyd"}):
        refused(400, lambda wrong=wrong: provider.fault("late", **wrong))  # type: ignore[misc]


def test_chaos_has_a_seed(provider: Provider) -> None:
    def history(action: str, seed: int) -> list[str | None]:
        provider.clear()
        provider.fault("error_before", times=1000, probability=0.5, seed=seed)
        for _ in range(40):
            try:
                post(f"{provider.url}/opaque/{action}", {})
            except ProviderError:
                pass
        return [request.fault for request in provider.requests() if request.action == action]

    first = history("a", 1)
    assert first == history("b", 1) != history("c", 2)
    assert 5 < first.count(None) < 35
    assert provider.count("a") == first.count(None)


def test_concurrent_requests_share_out_the_faults_exactly(provider: Provider) -> None:
    provider.fault("error_before", times=7)

    def send(_: int) -> bool:
        try:
            post(f"{provider.url}/opaque/a", {})
        except ProviderError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(send, range(40))).count(False) == 7
    assert provider.count("a") == 33


def test_wait_for_request_counts_what_was_received(provider: Provider) -> None:
    with pytest.raises(TimeoutError, match="received 0 of 1"):
        provider.wait_for_request("a", timeout=0.05)
    provider.fault("hang", action="a")
    with ThreadPoolExecutor() as pool:
        hung = pool.submit(post, f"{provider.url}/looked/a", {}, timeout=0.5)
        provider.wait_for_request("a")
        assert isinstance(hung.exception(), TimeoutError)
    get(f"{provider.url}/looked/a")  # a read is not counted
    with pytest.raises(TimeoutError, match="received 1 of 2"):
        provider.wait_for_request("a", 2, timeout=0.05)
    assert provider.count("a") == 0


# ------------------------------------------------------------------------------------------------------------- process


def test_sigkill_loses_neither_acts_nor_keys(record: Path) -> None:
    with Provider.start(record) as first:
        answer = post(f"{first.url}/keyed/charge", {"cents": 5}, key="k", token=3)
        put(f"{first.url}/named/branch/x", {"at": "abc"})
        first.fault("cut_after")
        with pytest.raises(ConnectionResetError):
            post(f"{first.url}/opaque/fax", {})
        acts, requests = first.acts(), first.requests()
        first.kill()
        with pytest.raises(ConnectionRefusedError):
            post(f"{first.url}/opaque/fax", {})
    port = urlsplit(first.url).port or 0
    with Provider.start(record, port=port) as second:
        assert second.url == first.url
        assert second.acts() == acts
        assert second.requests() == requests
        assert post(f"{second.url}/keyed/charge", {"cents": 5}, key="k") == answer
        refused(422, lambda: post(f"{second.url}/keyed/charge", {"cents": 6}, key="k"))
        refused(412, lambda: put(f"{second.url}/named/branch/x", {"at": "abc"}))
        assert get(f"{second.url}/named/branch/x") == {"at": "abc"}
        assert second.count() == 3


def test_every_answered_act_survives_a_sigkill_under_load(record: Path) -> None:
    answered: list[str] = []

    def load(url: str) -> None:
        try:
            while True:
                answered.append(post(url, {})["id"])
        except (OSError, http.client.HTTPException):
            pass

    for rounds in range(1, 4):
        with Provider.start(record) as provider:
            threads = [threading.Thread(target=load, args=(f"{provider.url}/opaque/fax",)) for _ in range(8)]
            for thread in threads:
                thread.start()
            enough = len(answered) + 60
            until(lambda enough=enough: len(answered) > enough)  # type: ignore[misc]
            provider.kill()
            for thread in threads:
                thread.join()
        with Provider.start(record) as again:
            recorded = {act.id for act in again.acts()}
        assert set(answered) <= recorded
        assert len(recorded - set(answered)) <= 8 * rounds  # at most one unanswered act for each client that was cut off


def test_it_runs_in_a_session_of_its_own_and_close_ends_it(record: Path) -> None:
    provider = Provider.start(record)
    pid = provider.pid or 0
    assert os.getsid(pid) == pid
    other = Provider.connect(provider.url)
    other.close()
    assert other.pid is None
    assert runs(pid)
    child = os.fork()
    if child == 0:
        provider.close()  # in a fork it must not end what its parent uses
        os._exit(0)
    os.waitpid(child, 0)
    assert runs(pid)
    provider.close()
    provider.close()
    assert not runs(pid)
    with pytest.raises(ConnectionRefusedError):
        Provider.connect(provider.url)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
@pytest.mark.parametrize("thread", [False, True])
def test_it_dies_with_its_process_but_not_with_its_thread(record: Path, thread: bool) -> None:
    code = """if True:
        import sys, threading, time
        from semel.testing.provider import Provider
        def start():
            print(Provider.start(sys.argv[1]).pid, flush=True)
        if sys.argv[2] == "True":
            starter = threading.Thread(target=start)
            starter.start()
            starter.join()
        else:
            start()
        time.sleep(60)
    """
    command = [sys.executable, "-c", code, str(record), str(thread)]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.15)
        assert runs(pid)
        parent.kill()
        until(lambda: not runs(pid))


def test_the_command_line(record: Path) -> None:
    options = ("--record", str(record), "--retention", "0", "--lag", "9")
    command = [sys.executable, "-m", "semel.testing.provider", *options]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    for stop in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("semel provider on http://127.0.0.1:")
            assert line.endswith(f" record {record}\n")
            url = line.split()[3]
            assert post(f"{url}/keyed/a", {}, key="k") != post(f"{url}/keyed/a", {}, key="k")  # retention 0
            post(f"{url}/looked/b", {"marker": "m"})
            assert get(f"{url}/looked/b") == []  # lag 9
            process.send_signal(stop)
            assert process.wait(5) == 0
            assert process.stdout.read() == ""


def test_a_failed_start_says_so(provider: Provider, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        Provider.start(tmp_path / "no such directory" / "x.db")
    with pytest.raises(RuntimeError, match="did not start"):
        Provider.start(tmp_path / "other.db", port=urlsplit(provider.url).port or 0)
    errors = capfd.readouterr().err
    assert "cannot start" in errors
    assert "Address already in use" in errors
    assert "Traceback" not in errors


def test_helpers_speak_plain_http_only() -> None:
    with pytest.raises(ValueError, match="plain http"):
        get("https://127.0.0.1:1/")


def test_it_never_imports_sqlite3() -> None:
    code = "import sys, semel.testing.provider; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": SOURCE}).returncode == 0
