"""The verb `serve`: a model behind a page and an API."""

from pathlib import Path

from anyorder.commands.showing import note
from anyorder.errors import ConfigError


def serve_model(run: Path, *, host: str, port: int, token: str | None, show: bool) -> None:
    """Serves a model; see `anyorder serve --help`."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError('Serving needs FastAPI: pip install "anyorder[serve]".') from None
    from anyorder.serve.running import serve_run

    serve_run(run, host=host, port=port, token=token or None, tell=note, show=show)
