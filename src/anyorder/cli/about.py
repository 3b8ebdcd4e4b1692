"""The verb `info`: what a saved model is.

The verb `serve`: a model behind a page and an API.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyorder.cli.console import note, print_json, show
from anyorder.cli.runs import DOMAINS
from anyorder.domains import as_model, read_saved
from anyorder.errors import ConfigError
from anyorder.images.model import ImageModel
from anyorder.lattice.query_mixtures import question_words
from anyorder.saving.checkpoint import describe
from anyorder.tables.model import TableModel
from anyorder.text.model import TextModel


def describe_run(run: Path, *, json: bool) -> None:
    """Prints what a model is; see `anyorder info --help`."""
    saved = read_saved(run)
    model, network = as_model(saved, run), describe(saved.model.network)
    if json:
        found = {
            "domain": saved.notes["domain"],
            **_variables(model),
            "questions": None if saved.law is None else describe(saved.law),
            "network": network,
            "conditionals": describe(saved.model.conditionals),
            "parameters": saved.model.num_parameters,
            "anyorder": saved.version,
        }
        print_json(found)
        return
    facts = [("model of", DOMAINS[type(model)][0])]
    if isinstance(model, TableModel):
        show(["column", "taken for", "details"], model.table_.summary())
        names: Sequence[str] = model.table_.names
    elif isinstance(model, ImageModel):
        sizes = "x".join(map(str, saved.notes["shape"]))
        facts += [("shape", f"{sizes}, height x width x channels"), ("levels", f"{model.levels_}")]
        names = saved.model.schema.names
    else:
        facts += [("alphabet", repr(model.alphabet_)), ("length", f"{model.length} characters")]
        names = [str(place) for place in range(model.length)]
    facts += [("trained for", line) for line in question_words(saved.law, names)]
    facts += [
        ("network", _noun(network)),
        ("conditionals", _noun(describe(saved.model.conditionals))),
        ("parameters", f"{saved.model.num_parameters:,}"),
        ("saved by", f"anyorder {saved.version}"),
    ]
    show(["", str(run)], facts)


def _variables(model: TextModel | TableModel | ImageModel) -> dict[str, Any]:
    if isinstance(model, ImageModel):
        return {"shape": list(model.shape_ or ()), "levels": model.levels_}
    if isinstance(model, TextModel):
        return {"alphabet": model.alphabet_, "length": model.length, "hole": model.hole}
    return {"columns": [line._asdict() for line in model.table_.summary()]}


def _noun(description: dict[str, Any]) -> str:
    """`PathTransformer: layers 3, width 96`; of an ensemble, how many and what one of them is."""
    members = description.get("members")
    if members:
        return f"{len(members)} of {_noun(members[0])}"
    if "network" in description:
        return f"{_noun(description['network'])}; guided by normal distributions"
    options = [f"{key} {value}" for key, value in description.items() if key != "type"]
    return f"{description['type']}: {', '.join(options)}"


def serve_model(run: Path, *, host: str, port: int, token: str | None, show: bool) -> None:
    """Serves a model; see `anyorder serve --help`."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError('Serving needs FastAPI: pip install "anyorder[serve]".') from None
    from anyorder.serve.running import serve_run

    serve_run(run, host=host, port=port, token=token or None, tell=note, show=show)
