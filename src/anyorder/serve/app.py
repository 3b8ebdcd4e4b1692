"""The application: one model, its routes, and one page."""

import importlib.resources
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

import anyorder
from anyorder.domains import domain_of
from anyorder.errors import AnyOrderError
from anyorder.serve.batching import Batcher, Dispatcher
from anyorder.serve.limits import LOOPBACK, Guard, Limits, Metrics, RefusalError

MEDIA = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

VALUES = (
    "must be a finite number, a text, true, false or null; in evidence also a list of levels or an "
    'interval such as {"low": 30, "high": 40}.'
)
"""Values that a cell may hold."""

KIND = (
    "The body must come with the header `Content-Type: application/json`; it came with "
    '"{}". With curl: -H "Content-Type: application/json".'
)
"""Message for a body without its content type, which curl does not send by itself."""


def create_app(
    model: Any,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
    name: str = "model",
    run: str | None = None,
) -> FastAPI:
    """Returns the application of one fitted model.

    Args:
        model: Fitted estimator of any domain.
        limits: Limits of a request.
        token: Token that requests must bear; None for no token.
        hosts: Host names under which it answers without a token.
        name: Name of the model on the page.
        run: Folder that the code on the page loads; `name` by default.
    """
    limits, metrics = limits or Limits(), Metrics()
    step = model.model_.conditionals
    batcher = Batcher(waiting=limits.waiting, metrics=metrics, step=step)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await batcher.close()

    app = FastAPI(
        title="anyorder",
        version=anyorder.__version__,
        description="Queries p(these variables | those variables) of one trained model.",
        lifespan=lifespan,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
    )
    names = {"name": name, "run": name if run is None else run}
    app.include_router(domain_of(model).routes(model, Dispatcher(batcher, limits), **names))
    _add_page(app)

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Returns that the server is up."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def read_metrics() -> str:
        """Returns request and batch counts in the text format of Prometheus."""
        return metrics.to_text()

    _explain_errors(app)
    app.add_middleware(Guard, limits=limits, metrics=metrics, token=token, hosts=hosts)
    app.state.metrics = metrics
    return app


def _add_page(app: FastAPI) -> None:
    """Serves the files of the page by their names: no path of a request is ever opened."""
    folder = importlib.resources.files("anyorder.serve") / "page"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}

    def page(name: str) -> Response:
        if name not in files:
            raise RefusalError(404, "There is no such page.")
        suffix = name[name.rfind(".") :]
        return Response(files[name], media_type=MEDIA.get(suffix, "application/octet-stream"))

    @app.get("/", include_in_schema=False)
    async def read_page() -> Response:
        return page("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def read_file(name: str) -> Response:
        return page(name)


def _explain_errors(app: FastAPI) -> None:
    """Turns every error of a client into a status and a sentence."""

    @app.exception_handler(RefusalError)
    async def refused(_: Request, error: RefusalError) -> JSONResponse:
        return JSONResponse({"detail": error.sentence}, error.status)

    @app.exception_handler(AnyOrderError)
    async def mistaken(_: Request, error: AnyOrderError) -> JSONResponse:
        return JSONResponse({"detail": _plain(str(error))}, 422)

    @app.exception_handler(RequestValidationError)
    async def unread(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = error.errors()
        kind = request.headers.get("content-type", "")
        if "json" not in kind and errors[0]["type"] == "model_attributes_type":
            return JSONResponse({"detail": _plain(KIND.format(kind[:100]))}, 422)
        status = 400 if errors[0]["type"] == "json_invalid" else 422
        return JSONResponse({"detail": _sentence(errors)}, status)

    @app.exception_handler(HTTPException)
    async def missed(_: Request, error: HTTPException) -> JSONResponse:
        sentences = {404: "There is no such page.", 405: "This address takes another method."}
        sentence = sentences.get(error.status_code, _plain(str(error.detail)))
        return JSONResponse({"detail": sentence}, error.status_code, error.headers)


def _sentence(errors: Sequence[Any]) -> str:
    """Explains what is wrong with a request, without quoting the request."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return "The body must be JSON."
    place = first["loc"][1:]
    # Where one of several types must fit there is an error for each of them, and its name ends the
    # place.
    shared = _shared(place, errors[1]["loc"][1:]) if len(errors) > 1 else len(place)
    if 1 < shared < len(place) and isinstance(place[shared], str):
        return f"`{_named(place[:shared])}`: {VALUES}"
    message = {"missing": "is needed", "extra_forbidden": "is no field of this request"}.get(
        first["type"], str(first["msg"]).rstrip(".")
    )
    return _plain(f"`{_named(place)}`: {message}.")


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Returns the number of leading parts that two places share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), len(one))


def _named(place: Sequence[Any]) -> str:
    return _plain(".".join(str(part)[:80] for part in place) or "body")


def _plain(sentence: str) -> str:
    """Makes a sentence encodable, even if it quotes half of a pair of surrogates."""
    return sentence.encode("utf-8", "replace").decode()
