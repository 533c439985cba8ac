"""Each numbered line must be an error in both checkers."""

from datetime import timedelta
from semel.testing import Harness
from users import Receipt, app, bill, charge, send_invoice


def short(invoice_id: str) -> Receipt:
    raise NotImplementedError


def other(invoice_id: int, cents: int) -> Receipt:
    raise NotImplementedError


h = Harness(app)
h.fake(charge, short)  # 1 a parameter is missing
h.fake(charge, other)  # 2 a parameter of another type
h.fake(bill, short)  # 3 a task is no effect
h.fake(short, short)  # 4 a plain function is no effect
h.crash(send_invoice, at="later")  # 5
h.crash(bill, at="before")  # 6
h.sent(bill)  # 7
h.advance(60)  # 8 a duration is a timedelta
h.fake(send_invoice)  # 9


def f() -> None:
    h.arun() + timedelta(0)  # 10
