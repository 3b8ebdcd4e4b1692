"""Models on disk: one folder each, weights in safetensors, all else in JSON; nothing is pickled.

The folder holds `model.json`, which says what the model is (its schema, and its network,
conditionals and protocol as the arguments that build them again), and `weights.safetensors`, what
it learnt. How they are kept whole is in `storage.py`.
"""

import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anyorder.conditionals.contracts import Conditionals
from anyorder.configuration import build, describe
from anyorder.errors import CheckpointError
from anyorder.masks import MaskDistribution
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.protocols import DecompositionProtocol
from anyorder.query_laws import QueryLaw
from anyorder.storage import RunFolder, as_json, make_folder, read_pair, write_pair
from anyorder.variables import Schema

Law = QueryLaw | MaskDistribution


class SavedModel(NamedTuple):
    """What the folder of a model holds."""

    model: AnyOrderModel
    law: Law | None
    notes: dict[str, Any]
    version: str
    """Of the anyorder that saved it."""


def save_model(
    folder: str | Path,
    model: AnyOrderModel,
    *,
    law: Law | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Saves a model, in place of one that is already there.

    Args:
        folder: Made if it does not exist. Other files in it are left alone.
        model: The model.
        law: The questions that it was trained on.
        notes: Anything that JSON can hold.
    """
    document = describe_model(model, law=law, notes=notes)
    tensors = {name: tensor.detach().cpu() for name, tensor in named_tensors(model).items()}
    make_folder(Path(folder))
    write_pair(Path(folder), "model", document, tensors)


def load_model(folder: str | Path, *, device: str | torch.device = "cpu") -> AnyOrderModel:
    """Loads the model of a folder, ready to answer.

    Args:
        folder: Where `save_model` saved it; or the folder of a training run, which gives what the
            training would have returned if it had ended at its last checkpoint.
        device: Where the model goes.
    """
    return load_saved(folder, device=device).model


def load_saved(folder: str | Path, *, device: str | torch.device = "cpu") -> SavedModel:
    """Loads the model of a folder with its query law and its notes; see `load_model`."""
    place = Path(folder)
    pairs = None if (place / "model.json").exists() else RunFolder(place).load("model")
    document, tensors = pairs[0] if pairs else read_pair(place, "model")
    try:
        model = build_model(document)
        law = document["law"] and build(document["law"], QueryLaw, MaskDistribution)
        notes, version = dict(document["notes"]), str(document["anyorder"])
    except CheckpointError:
        raise
    except Exception as error:  # whatever a description that was tampered with may set off
        raise CheckpointError(
            f'"{folder}" describes a model that cannot be built ({error!r}).'
        ) from error
    fill(named_tensors(model), tensors)
    if not all(tensor.isfinite().all() for tensor in named_tensors(model).values()):
        raise CheckpointError(f'The weights of "{folder}" are no numbers: train it again.')
    return SavedModel(model.to(device).eval(), law, notes, version)


def describe_model(
    model: AnyOrderModel, *, law: Law | None = None, notes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What `model.json` says of a model."""
    parts = {
        "schema": json.loads(model.schema.to_json()),
        "network": describe(model.network),
        "conditionals": describe(model.conditionals),
        "protocol": describe(model.protocol),
        "law": None if law is None else describe(law),
        "notes": dict(notes or {}),
    }
    return as_json(parts)


def build_model(document: Mapping[str, Any]) -> AnyOrderModel:
    """The model that `model.json` describes, not yet trained."""
    _know_all("anyorder.networks", "anyorder.conditionals", "anyorder.query_mixtures")
    # Its first weights are drawn and then overwritten: the user's random state is not for that.
    with torch.random.fork_rng(devices=[]):
        try:
            schema = Schema.from_json(json.dumps(document["schema"]))
            network = build(document["network"], MaskedNetwork, PathNetwork, schema=schema)
            conditionals = build(document["conditionals"], Conditionals, schema=schema)
            protocol = build(document["protocol"], DecompositionProtocol)
        except KeyError as error:
            raise CheckpointError(f"model.json does not describe the model's {error}.") from None
    return AnyOrderModel(schema, network, conditionals, protocol)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that make up what a model learnt, each once: safetensors stores no ties."""
    parameters = dict(model.named_parameters())
    tied = dict(model.named_parameters(remove_duplicate=False))
    buffers = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    return {**parameters, **buffers}


@torch.no_grad()
def fill(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copies values into the tensors of the same names, or says which do not fit."""
    for name in (*tensors, *values):
        found = [
            f"shape {tuple(p[name].shape)}" if name in p else "none" for p in (values, tensors)
        ]
        if found[0] != found[1]:
            raise CheckpointError(
                f'The weights do not fit the model: of "{name}" there is {found[0]} in the file '
                f"and {found[1]} in the model. Load it with the version of anyorder that saved it."
            )
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def _know_all(*names: str) -> None:
    """Imports modules, and those of packages, so that the classes in them are found by name."""
    for name in names:
        found = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(found, "__path__", ())):
            importlib.import_module(f"{name}.{module.name}")
