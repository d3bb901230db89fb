"""The server of `ahbm view`: for this machine alone, and for who has the address that it prints.

It listens on a loopback address, and answers a request only with the token of its address, with a Host that is its own
and, where a browser names one, with its own Origin: no page of another site reaches it. A client names what it wants by
positions in a list, never by a path; bodies have a limit, and one run is made at a time.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ahbm.base.optional import needed
from ahbm.errors import AhbmError, ConfigError
from ahbm.views.live import MOST_TEXT, Bench, error_of

MOST_BODY = 2 * MOST_TEXT
MOST_WAITING = 8
"""Requests that may wait for a run."""
HINT = "pip install 'ahbm[view]', or '.[view]' here"


def require_extra() -> None:
    """Raises UnsupportedError (AHBM-U145) unless the packages of the extra `view` are there."""
    for name in ("starlette", "uvicorn"):
        needed(name, f"ahbm view needs {name}", HINT)


def loopback(host: str) -> str:
    """The address of a host name that is this machine. Raises ConfigError (AHBM-C146) for any other."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        found = None
    if found is None or not found.is_loopback:
        hint = "ssh -L 8765:127.0.0.1:8765 THERE shows a server of another machine"
        raise ConfigError(
            "AHBM-C146", f"--host {host} is no loopback address: ahbm view is for this machine", hint=hint
        )
    return str(found)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ConfigError (AHBM-C146) for a port that is taken."""
    address = loopback(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address, port))
    except OSError as error:
        made.close()
        raise ConfigError("AHBM-C146", f"--port {port}: {error.strerror}", hint="--port 0 takes any") from error
    made.listen(64)
    return made


def address_of(listener: socket.socket, token: str) -> str:
    """What a browser opens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}"


def script() -> str:
    """The viewer and what `ahbm view` has around it."""
    folder = Path(__file__).parent
    viewer = (folder / "viewer.js").read_text(encoding="utf-8")
    return viewer[: viewer.rindex("export {")] + (folder / "live.js").read_text(encoding="utf-8")


def page(nonce: str) -> str:
    """The page, with its script and nothing of a request."""
    text = (Path(__file__).parent / "live.html").read_text(encoding="utf-8")
    return text.replace("@NONCE@", nonce).replace("@SCRIPT@", script().replace("</script", "<\\/script"))


def application(bench: Bench, token: str, port: int) -> Any:
    """The application, for any server of ASGI."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    waiting = 0

    def refusal(request: Request) -> Response | None:
        """What is said to a request that may not be answered."""
        if request.headers.get("host", "") not in hosts:
            return PlainTextResponse("this server answers to its own name alone", 421)
        origin = request.headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in hosts:
            return PlainTextResponse("this server answers its own page alone", 403)
        given = request.headers.get("x-ahbm-token") or (
            request.query_params.get("token", "") if request.url.path == "/" else ""
        )
        if not secrets.compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("open the address that ahbm view printed: it has a token", 403)
        return None

    def safe(answer: Response, nonce: str = "") -> Response:
        scripts = f"'nonce-{nonce}'" if nonce else "'none'"
        answer.headers["Content-Security-Policy"] = (
            f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; connect-src 'self'; "
            "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        for name, value in (
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            answer.headers[name] = value
        return answer

    def guarded(act: Any) -> Any:
        async def called(request: Request) -> Response:
            nonlocal waiting
            refused = refusal(request)
            if refused is not None:
                return safe(refused)
            if waiting >= MOST_WAITING:
                return safe(PlainTextResponse("too many requests wait", 429))
            waiting += 1
            try:
                body = await body_of(request)
                if isinstance(body, Response):
                    return safe(body)
                return safe(JSONResponse(await run_in_threadpool(act, request, body)))
            except AhbmError as error:
                return safe(JSONResponse({"error": error_of(error)}, 400))
            finally:
                waiting -= 1

        return called

    async def body_of(request: Request) -> dict[str, Any] | Response:
        """The object that was sent; empty for none."""
        import json

        if request.method != "POST":
            return {}
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("send application/json", 415)
        received = bytearray()
        async for piece in request.stream():
            received += piece
            if len(received) > MOST_BODY:
                return PlainTextResponse("that is too much", 413)
        try:
            found = json.loads(received)
        except (ValueError, RecursionError):
            return PlainTextResponse("that is no JSON", 400)
        return found if isinstance(found, dict) else PlainTextResponse("send an object", 400)

    async def root(request: Request) -> Response:
        refused = refusal(request)
        if refused is not None:
            return safe(refused)
        nonce = secrets.token_urlsafe(16)
        return safe(HTMLResponse(page(nonce)), nonce)

    def state(request: Request, body: Mapping[str, Any]) -> Any:
        return bench.state()

    def run(request: Request, body: Mapping[str, Any]) -> Any:
        return bench.run(body, check=body.get("check") is True)

    def origin(request: Request, body: Mapping[str, Any]) -> Any:
        return bench.origin(body)

    def comparison(request: Request, body: Mapping[str, Any]) -> Any:
        return bench.sweep_state() if request.method == "GET" else bench.begin_sweep(body)

    def source(request: Request, body: Mapping[str, Any]) -> Any:
        number = int(request.path_params["item"])
        if request.method == "GET":
            return {"text": bench.source(number), "stamp": bench.stamp(number)}
        bench.save(number, body.get("text"))
        return bench.run({**body, "item": number}) | {"stamp": bench.stamp(number)}

    def stamp(request: Request, body: Mapping[str, Any]) -> Any:
        return {"stamp": bench.stamp(int(request.path_params["item"]))}

    return Starlette(
        routes=[
            Route("/", root),
            Route("/api/state", guarded(state)),
            Route("/api/run", guarded(run), methods=["POST"]),
            Route("/api/origin", guarded(origin), methods=["POST"]),
            Route("/api/sweep", guarded(comparison), methods=["GET", "POST"]),
            Route("/api/source/{item:int}", guarded(source), methods=["GET", "POST"]),
            Route("/api/stamp/{item:int}", guarded(stamp)),
        ]
    )


def serve(bench: Bench, listener: socket.socket, token: str) -> None:
    """Answers until Ctrl-C. Raises UnsupportedError (AHBM-U145) without the extra."""
    require_extra()
    import uvicorn

    port = listener.getsockname()[1]
    config = uvicorn.Config(
        application(bench, token, port), log_level="error", access_log=False, lifespan="off", server_header=False
    )
    uvicorn.Server(config).run(sockets=[listener])
