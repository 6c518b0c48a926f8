"""The routes.  Every error, whatever its cause, is OpenAI's error object; none shows what is inside."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from batchwright.limits import Limits
from batchwright.server.answering import Answering
from batchwright.server.asked import Asked, Reader
from batchwright.server.desk import RETRY, Desk
from batchwright.server.metrics import CONTENT_TYPE, Metrics
from batchwright.server.refusal import Refusal
from batchwright.server.replies import Chat, Completion, Form, Replies

LOG: Final = logging.getLogger("batchwright.server")
LARGE: Final = 1 << 16  # bytes of a body that is read beside the loop, so that streams go on


@dataclass(frozen=True, kw_only=True)
class Service:
    """What answers once the model is loaded."""

    reader: Reader
    desk: Desk
    limits: Limits


class Site:
    """The server as its clients see it.  `service`: None until the model is loaded."""

    def __init__(
        self, name: str, metrics: Metrics, *, most_bytes: int, api_key: str | None, logs: bool
    ) -> None:
        self.service: Service | None = None
        self._name = name
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._logs = logs
        self._created = int(time.time())
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]
        handlers: dict[Any, Any] = {
            Refusal: _refused,
            HTTPException: _unrouted,
            ClientDisconnect: _gone,
            Exception: _broken,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        self.app: ASGIApp = app if api_key is None else Guarded(app, api_key)

    # --- routes ---------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """200 while requests are taken."""
        self._open()
        return Response()

    async def metrics(self, request: Request) -> Response:
        """Prometheus text."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        """The one model."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """It alone."""
        self._loaded().reader.check_model(request.path_params["name"])
        return JSONResponse(self._model())

    async def completions(self, request: Request) -> Answering:
        """OpenAI's text completions."""
        return await self._answer(request, Reader.completion, Completion())

    async def chat(self, request: Request) -> Answering:
        """OpenAI's chat completions."""
        return await self._answer(request, Reader.chat, Chat())

    # --- inside ---------------------------------------------------------------

    def _loaded(self) -> Service:
        """Raises Refusal while the model is being loaded."""
        if self.service is None:
            raise Refusal(503, "the model is being loaded; try again later", retry_after=RETRY)
        return self.service

    def _open(self) -> Service:
        """Raises Refusal also when the server ends."""
        service = self._loaded()
        service.desk.check_open()
        return service

    def _model(self) -> dict[str, Any]:
        limits = self._loaded().limits
        return {
            "id": self._name,
            "object": "model",
            "created": self._created,
            "owned_by": "batchwright",
            "root": self._name,
            "parent": None,
            "max_model_len": limits.longest,
        }

    async def _answer(
        self, request: Request, understand: Callable[[Reader, bytes], Asked], form: Form
    ) -> Answering:
        service = self._open()
        body = await self._body(request)
        if len(body) > LARGE:
            asked = await asyncio.to_thread(understand, service.reader, body)
        else:
            asked = understand(service.reader, body)
        if self._logs:
            LOG.info("%s %s", form.id, body.decode(errors="replace"))
        answer = service.desk.open(asked)
        replies = Replies(
            form=form,
            model=self._name,
            sequence=asked.sequence,
            has_usage=asked.has_usage,
            has_usages=asked.has_usages,
        )
        return Answering(service.desk, answer, replies)

    async def _body(self, request: Request) -> bytes:
        """Raises Refusal if it is no JSON, by its type, or too large."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, f"the content type is {kind[:80]!r}; send application/json")
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._most_bytes:
                raise Refusal(413, f"the body has over {self._most_bytes} bytes, which is the most")
        return bytes(body)


class Guarded:
    """Lets only those in to `/v1` who show the key."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._shown = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1") and not self._is_shown(scope):
            refusal = Refusal(401, "the API key is missing or wrong", code="invalid_api_key")
            await _answer_of(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_shown(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._shown)


def _answer_of(refusal: Refusal) -> Response:
    return JSONResponse(refusal.body(), status_code=refusal.status, headers=refusal.headers())


async def _refused(request: Request, error: Refusal) -> Response:
    return _answer_of(error)


async def _unrouted(request: Request, error: HTTPException) -> Response:
    said = {404: f"there is no {request.url.path[:200]}", 405: f"{request.method} is not allowed here"}
    return _answer_of(Refusal(error.status_code, said.get(error.status_code, error.detail)))


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=400)


async def _broken(request: Request, error: Exception) -> Response:
    return _answer_of(Refusal(500, "the server failed on this request; its log says more"))
