"""What goes over TLS is read before it is encrypted, where the encryption is Python's own."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from faults_lab import HERE, Lab
from test_faults_found import lines_that_say, whole

from semel.testing.crashtest import faults

APP = HERE / "apps" / "secure.py"


class Answers(BaseHTTPRequestHandler):
    """Answers everything, and keeps connections."""

    protocol_version = "HTTP/1.1"
    posted: list[str]

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.command == "POST":
            self.posted.append(self.path)
        body = b'{"id":"1"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not to stderr."""


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The URL of a TLS server, and what was posted there."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (tmp_path / "server.pem").write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    answers = type("Here", (Answers,), {"posted": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", answers.posted
    server.shutdown()
    server.server_close()


def test_faults_are_found_in_what_goes_over_tls(lab: Lab, secure: tuple[str, list[str]]) -> None:
    url, posted = secure
    runs = [lab.run(APP, "secure insists", "o1", lose="insist", provider=url)]
    told = {fault.where: fault for fault in faults.found(runs)}
    said = lines_that_say(APP)
    assert {where: fault for where, fault in told.items() if fault.name == faults.KEYLESS}.keys() == set(told) - set(said)
    for where, words in said.items():
        assert words[0] in told[where].what, (where, told)
    assert whole(runs).replies_lost == 1
    assert posted.count("/insist") == 2, "the reply was lost behind the act, and the effect sent again"
