"""What the services agree to, and what they read of HTTP."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulated_services.contents import COLUMNS, blob_bytes, row_of
from emulated_services.heads import RequestRefused, answer_head, head_of, range_of, refusal
from emulated_services.limits import BURST_S, Gate, Limit, Terms
from headgate.topology_runtime.services.addresses import Address, address_of
from headgate.topology_runtime.services.names import row_key


class TestLimit:
    @given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.001, 50)), min_size=1), st.floats(0.5, 100))
    def test_never_more_than_the_rate_and_one_burst(
        self, asked: list[tuple[float, float]], rate: float
    ) -> None:
        limit, now_s = Limit(rate), 0.0
        passed: list[tuple[float, float]] = []
        for pause_s, amount in asked:
            now_s += pause_s
            passed.append((now_s + limit.wait_s(amount, now_s), amount))
        for first in range(len(passed)):
            for last in range(first, len(passed)):
                amount = sum(each for _, each in passed[first + 1 : last + 1])
                took_s = passed[last][0] - passed[first][0]
                assert amount <= rate * (took_s + BURST_S) * (1 + 1e-9) + 1e-6

    @given(st.floats(0.5, 1e8), st.integers(1, 200))
    def test_a_busy_service_gives_its_whole_rate(self, rate: float, count: int) -> None:
        limit = Limit(rate)
        waits = [limit.wait_s(rate / 10, 5.0) for _ in range(count)]
        assert waits == sorted(waits)
        assert waits[-1] == pytest.approx(max(0.0, count / 10 - BURST_S))

    def test_an_idle_service_saves_up_one_burst_only(self) -> None:
        limit = Limit(100.0)
        limit.wait_s(1.0, 0.0)
        waits = [limit.wait_s(1.0, 1000.0) for _ in range(7)]
        assert waits[:5] == pytest.approx([0.0] * 5) and waits[5:] == pytest.approx([0.01, 0.02])

    def test_no_terms_no_waiting(self) -> None:
        async def pass_often() -> None:
            gate = Gate(Terms())
            for _ in range(1000):
                await gate.request()
                await gate.data(10**9)

        with pytest.raises(StopIteration):  # it never gives the loop its turn
            pass_often().send(None)
        asyncio.run(pass_often())


class TestHead:
    def test_a_request(self) -> None:
        head = head_of(b"PUT /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n\r\n")
        assert (head.method, head.path, head.body_bytes) == ("PUT", "/a?b", 12)
        assert head_of(b"GET / HTTP/1.0\r\n\r\n").body_bytes == 0

    @pytest.mark.parametrize(
        "data", [b"\r\n\r\n", b"GET /\r\n\r\n", b"GET / FTP/1\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
                 b"GET / HTTP/1.1\r\n x: folded\r\n\r\n", b"\x16\x03\x01\r\n\r\n"],
    )  # fmt: skip
    def test_what_is_no_request_is_refused(self, data: bytes) -> None:
        with pytest.raises(RequestRefused) as error:
            head_of(data)
        assert error.value.status == 400

    @pytest.mark.parametrize(
        ("field", "status"),
        [("Transfer-Encoding: chunked", 411), ("Content-Length: -1", 400), ("Content-Length: ²", 400),
         ("Content-Length:", 400), ("Content-Length: 12abc", 400), ("Content-Length: " + "9" * 5000, 400)],
    )  # fmt: skip
    def test_a_body_without_a_plain_end_is_refused(self, field: str, status: int) -> None:
        with pytest.raises(RequestRefused) as error:
            _ = head_of(f"PUT / HTTP/1.1\r\n{field}\r\n\r\n".encode("latin-1")).body_bytes
        assert error.value.status == status

    @pytest.mark.parametrize(
        ("text", "part"),
        [(None, None), ("bytes=0-9", (0, 10)), ("bytes=90-", (90, 100)), ("bytes=-5", (95, 100)),
         ("bytes=95-1000", (95, 100)), ("bytes=-1000", (0, 100)), ("bytes=1-2,4-5", None), ("lines=1-2", None),
         ("bytes=x-y", None), ("bytes=-", None), ("bytes=0-" + "9" * 5000, None), ("bytes=²-", None)],
    )  # fmt: skip
    def test_ranges(self, text: str | None, part: tuple[int, int] | None) -> None:
        assert range_of(text, 100) == part

    @pytest.mark.parametrize("text", ["bytes=100-", "bytes=9-3", "bytes=-0"])
    def test_a_range_outside_is_refused(self, text: str) -> None:
        with pytest.raises(RequestRefused) as error:
            range_of(text, 100)
        assert error.value.status == 416

    def test_answers(self) -> None:
        assert answer_head(200, 3).endswith(b"\r\n\r\n") and b"Content-Length: 3" in answer_head(200, 3)
        assert b"Connection: close" in refusal(502)


class TestContents:
    def test_the_papers_row(self) -> None:
        row = row_of(1_999_999)
        kinds = {int: 4, float: 8}
        sizes = [kinds.get(type(value)) or len(str(value)) for value in row.values()]
        assert tuple(row) == COLUMNS and len(row) == 20 and sum(sizes) == 200
        assert all(abs(value) < 2**31 for value in row.values() if isinstance(value, int))

    def test_keys_sort_and_blobs_differ(self) -> None:
        assert row_key(9) < row_key(10) < row_key(1_999_999)
        assert blob_bytes(1, 100) == blob_bytes(1, 100) != blob_bytes(2, 100)


def test_an_address_needs_only_its_backend() -> None:
    assert address_of("embedded", 10002) == Address("embedded", "127.0.0.1", 10002)
    assert str(address_of("azurite://storage:7", 1)) == "azurite://storage:7"
