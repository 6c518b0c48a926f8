"""An answer as an ASGI response: whole, or as server-sent events.

Nothing is sent before the first token is there, so that a request that fails until then gets a status of
its own.  While the answer is made, the connection is watched: a client that hangs up frees its blocks.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from batchwright.server.desk import Answer, Desk
from batchwright.server.replies import Replies, failure

EVENTS: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Answering:
    """Sends `answer` as it comes.  Raises Refusal if it fails before anything was sent."""

    def __init__(self, desk: Desk, answer: Answer, replies: Replies) -> None:
        self._desk = desk
        self._answer = answer
        self._replies = replies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.ensure_future(self._watch(receive))
        try:
            if self._answer.asked.is_streamed:
                await self._stream(send)
            else:
                await Response(await self._whole(), media_type="application/json")(scope, receive, send)
        finally:
            watch.cancel()
            self._desk.leave(self._answer)

    async def _watch(self, receive: Receive) -> None:
        """Until the client has gone, or was answered."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._desk.leave(self._answer)

    async def _whole(self) -> bytes:
        answer = self._answer
        while not answer.is_over:
            await answer.news()
        if answer.refusal is not None:
            raise answer.refusal
        return self._replies.whole("".join(answer.texts), answer.finish_reason)

    async def _stream(self, send: Send) -> None:
        answer, replies = self._answer, self._replies
        await answer.news()
        if answer.refusal is not None and not answer.texts:
            raise answer.refusal
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        body = replies.opening() + self._fresh()
        while not answer.is_over:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await answer.news()
            body = self._fresh()
        last = replies.closing() if answer.refusal is None else failure(answer.refusal.body())
        await send({"type": "http.response.body", "body": body + last, "more_body": False})

    def _fresh(self) -> bytes:
        """The events of all that came since the last time."""
        answer = self._answer
        texts, answer.texts = answer.texts, []
        return self._replies.events(texts, answer.finish_reason)
