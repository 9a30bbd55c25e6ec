"""The requests of the page and of scripts: read by anybody on this machine, write with the token.

Writing is always two requests: `rate`, `stop` and `approve` answer with a proposal, `apply` does it.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headgate.dashboards.web import proposals as p
from headgate.dashboards.web.page_access import (
    BODY_MOST_BYTES,
    THE_TOKEN,
    TOKEN_HEADER,
    answered,
    refused,
    same_token,
)
from headgate.dashboards.web.page_stream import Hub
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput, Unreachable
from headgate.topology_runtime.platform.clock import monotonic_ns

STATUS = {2: 400, 3: 400, 4: 422, 5: 503, 6: 409, 7: 409}  # exit code → HTTP status
WHATIF_S = 60.0

Body = TypeVar("Body")
Ask = Callable[[str, dict[str, Any], float], Awaitable[Any]]
Handler = Callable[[Request], Awaitable[Response]]


class Refusal(Exception):
    def __init__(self, status: int, code: str, what: str) -> None:
        super().__init__(what)
        self.status, self.code, self.what = status, code, what


class RatesAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `whatif`. full: also how far the same slots reach, and what one slot more would buy. offered: the
    rates are offered, and the rows are of what the controller would plan for then. compare: by every scheduler."""

    rates: list[float]
    full: bool = False
    offered: bool = False
    compare: bool = False


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate_tps: float


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plan: str | None = None


class Application(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


def guarded(handler: Handler) -> Handler:
    @functools.wraps(handler)
    async def safe(request: Request) -> Response:
        try:
            return await handler(request)
        except Refusal as error:
            return refused(error.status, error.code, error.what)
        except HeadgateError as error:
            told = {"cause": error.cause, "hint": error.hint, "faults": list(error.faults)}
            return refused(STATUS.get(error.exit_code, 500), error.code, error.what, **told)

    return safe


async def body_of(request: Request, kind: type[Body]) -> Body:
    """The request's JSON as this type. Raises Refusal."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refusal(415, "HG-BODY", "the body must be application/json")
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_MOST_BYTES:
            raise Refusal(413, "HG-BODY", f"the body has more than {BODY_MOST_BYTES} bytes")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "HG-INVALID", f"the body is not what is asked for: {error}") from error


def document_of(request: Request) -> dict[str, Any]:
    hub: Hub = request.app.state.hub
    if hub.document is None:
        why = hub.stale.why if hub.stale is not None else None
        raise Unreachable("there is no picture yet", cause=why)
    return hub.document


async def asked(request: Request, command: str, arguments: dict[str, Any], seconds: float = 10.0) -> Any:
    """What the controller says. Raises Conflict over a trace, HeadgateError as the controller does."""
    ask: Ask | None = request.app.state.ask
    if ask is None:
        raise Conflict("a trace has no controller to ask")
    return await ask(command, arguments, seconds)


def check_token(request: Request) -> None:
    if not same_token(request.headers.get(TOKEN_HEADER), request.app.state.token):
        raise Refusal(401, "HG-TOKEN", f"writing needs {THE_TOKEN}")


@guarded
async def snapshot(request: Request) -> Response:
    return answered(document_of(request))


@guarded
async def state(request: Request) -> Response:
    """The state of one key: `?task=TASK&key=KEY`, as `headgate state get` takes them."""
    given = request.query_params
    if set(given) != {"task", "key"}:
        raise Refusal(400, "HG-INVALID", "give task=TASK and key=KEY, and nothing else")
    async with request.app.state.looking:
        return answered(await asked(request, "state", {"task": given["task"], "key": given["key"]}))


@guarded
async def whatif(request: Request) -> Response:
    """Rows of slots, VMs, cost and prediction for each rate, by the controller's own planner."""
    body = await body_of(request, RatesAsked)
    return answered(await _thought(request, body))


@guarded
async def rate(request: Request) -> Response:
    check_token(request)
    body = await body_of(request, Rate)
    if not 0 <= body.rate_tps <= 1e9:
        raise InvalidInput(f"invalid rate {body.rate_tps!r}", hint="give rows per second, 0 or more")
    now = document_of(request)
    row = None
    if body.rate_tps > 0:
        row = (await _thought(request, RatesAsked([body.rate_tps], offered=True)))["rows"][0]
    return _proposed(request, now, p.rate_proposal(body.rate_tps, now, row))


@guarded
async def stop(request: Request) -> Response:
    check_token(request)
    await body_of(request, Nothing)
    now = document_of(request)
    return _proposed(request, now, p.stop_proposal(now))


@guarded
async def approve(request: Request) -> Response:
    check_token(request)
    body = await body_of(request, Approval)
    now = document_of(request)
    return _proposed(request, now, p.approve_proposal(now, body.plan))


@guarded
async def apply(request: Request) -> Response:
    check_token(request)
    body = await body_of(request, Application)
    found = request.app.state.proposals.take(body.id, document_of(request), monotonic_ns())
    done = await asked(request, found.command, found.arguments)
    return answered(
        {"schema": "headgate/applied/v1", "kind": found.kind, "summary": found.summary, "done": done}
    )


async def _thought(request: Request, rates: RatesAsked) -> Any:
    """What the planner says of these rates; only so many questions at once."""
    async with request.app.state.thinking:
        return await asked(request, "whatif", msgspec.to_builtins(rates), WHATIF_S)


def _proposed(request: Request, now: dict[str, Any], parts: dict[str, Any]) -> Response:
    if request.app.state.ask is None:
        raise Conflict("a trace cannot be changed")
    boot, epoch = p.place_of(now)
    found = p.PageProposal(id=secrets.token_hex(8), boot=boot, epoch=epoch, made_ns=monotonic_ns(), **parts)
    request.app.state.proposals.add(found)
    return answered(found.data())
