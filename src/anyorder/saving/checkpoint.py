"""Saved models: a folder with `model.json` and `weights.safetensors`; nothing is pickled.

`model.json` describes the schema, the network, the conditionals and the protocol. The description
of an object is its class name and the arguments of its constructor. An object that is saved (a law,
a protocol, a network) keeps every argument in an attribute of the same name, so its description is
read off the signature, and rebuilding it is one call. Nothing is ever unpickled or evaluated.

`run_folder.py` writes the files atomically.
"""

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anyorder.errors import CheckpointError, nearest
from anyorder.heads.distributions import Conditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import DecompositionProtocol
from anyorder.lattice.query_laws import QueryLaw
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.priors.contract import Prior
from anyorder.priors.levels import default_prior
from anyorder.saving.run_folder import RunFolder, as_json, make_folder, read_pair, write_pair
from anyorder.variables import Schema

PLAIN = (str, int, float, bool, type(None))


def describe(part: object) -> dict[str, Any]:
    """Returns the description of an object: its class name and its constructor's arguments.

    A schema among the arguments is left out: it is saved once for all parts of a model.
    """
    names = inspect.signature(type(part)).parameters
    arguments = {name: _plain(getattr(part, name)) for name in names if name != "schema"}
    return {"type": type(part).__name__, **arguments}


def build(description: dict[str, Any], *kinds: type[Any], schema: Schema | None = None) -> Any:
    """Builds an object from its description.

    Args:
        description: Result of `describe`.
        kinds: Base classes that the object, and the objects it is made of, may have.
        schema: Schema for classes whose constructor takes one.
    """
    classes = {cls.__name__: cls for kind in kinds for cls in _family(kind)}
    try:
        name = description["type"]
        arguments = {
            key: _built(value, kinds, schema) for key, value in description.items() if key != "type"
        }
    except (TypeError, KeyError, AttributeError):
        raise CheckpointError(
            f"This does not describe a part of a model: {description!r}."
        ) from None
    if name not in classes:
        raise CheckpointError(
            f'The model needs a class "{name}" that is not known here.{nearest(name, classes)} '
            "Import the module that defines it first."
        )
    if "schema" in inspect.signature(classes[name]).parameters:
        arguments["schema"] = schema
    try:
        return classes[name](**arguments)
    except TypeError as error:
        raise CheckpointError(f"The description of {name} does not fit it: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return describe(value)


def _built(value: Any, kinds: tuple[type, ...], schema: Schema | None) -> Any:
    if isinstance(value, dict):
        return build(value, *kinds, schema=schema)
    if isinstance(value, list):
        return [_built(item, kinds, schema) for item in value]
    return value


def _family(kind: type) -> list[type]:
    children: list[type] = kind.__subclasses__()
    return [kind, *(cls for child in children for cls in _family(child))]


Law = QueryLaw | MaskDistribution


class SavedModel(NamedTuple):
    """Contents of the folder of a model; `version` is that of the anyorder which saved it."""

    model: AnyOrderModel
    law: Law | None
    notes: dict[str, Any]
    version: str


def save_model(
    folder: str | Path,
    model: AnyOrderModel,
    *,
    law: Law | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Saves a model, and replaces one that is already there.

    Args:
        folder: Folder to save in, created if needed. Other files in it are left alone.
        model: The model.
        law: Law of the queries that it was trained on.
        notes: Anything that JSON can hold.
    """
    document = describe_model(model, law=law, notes=notes)
    tensors = {name: tensor.detach().cpu() for name, tensor in named_tensors(model).items()}
    make_folder(Path(folder))
    write_pair(Path(folder), "model", document, tensors)


def load_model(folder: str | Path, *, device: str | torch.device = "cpu") -> AnyOrderModel:
    """Loads the model of a folder, in evaluation mode.

    Args:
        folder: Folder of `save_model`, or of a training run: then the model is the one that the
            training would have returned if it had ended at its last checkpoint.
        device: Device of the model.
    """
    return load_saved(folder, device=device).model


def load_saved(folder: str | Path, *, device: str | torch.device = "cpu") -> SavedModel:
    """Loads the model of a folder with its query law and its notes; see `load_model`."""
    path = Path(folder)
    pairs = None if (path / "model.json").exists() else RunFolder(path).load("model")
    document, tensors = pairs[0] if pairs else read_pair(path, "model")
    try:
        document, tensors = upgraded(document, tensors)
        model = build_model(document)
        law = document["law"] and build(document["law"], QueryLaw, MaskDistribution)
        notes, version = dict(document["notes"]), str(document["anyorder"])
    except CheckpointError:
        raise
    except Exception as error:  # a description that was tampered with may raise anything
        raise CheckpointError(
            f'"{folder}" describes a model that cannot be built ({error!r}).'
        ) from error
    fill(named_tensors(model), tensors)
    if not all(tensor.isfinite().all() for tensor in named_tensors(model).values()):
        raise CheckpointError(f'The weights of "{folder}" are not finite: train it again.')
    return SavedModel(model.to(device).eval(), law, notes, version)


def describe_model(
    model: AnyOrderModel, *, law: Law | None = None, notes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the contents of `model.json`."""
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
    """Builds the model that `model.json` describes, without its weights."""
    _import_all("anyorder.networks", "anyorder.priors", "anyorder.heads", "anyorder.lattice")
    # Initial weights are sampled and then overwritten: the user's random state must not change.
    with torch.random.fork_rng(devices=[]):
        try:
            schema = Schema.from_json(json.dumps(document["schema"]))
            network = build(document["network"], MaskedNetwork, PathNetwork, Prior, schema=schema)
            conditionals = build(document["conditionals"], Conditionals, schema=schema)
            protocol = build(document["protocol"], DecompositionProtocol)
        except KeyError as error:
            raise CheckpointError(f"model.json does not describe the model's {error}.") from None
    return AnyOrderModel(schema, network, conditionals, protocol)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters and buffers of a model, tied ones once: safetensors stores no ties."""
    parameters = dict(model.named_parameters())
    tied = dict(model.named_parameters(remove_duplicate=False))
    buffers = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    return {**parameters, **buffers}


@torch.no_grad()
def fill(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copies values into the tensors of the same names; raises if names or shapes differ."""
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


def _import_all(*names: str) -> None:
    """Imports packages and their modules, so that `build` finds their classes by name."""
    for name in names:
        found = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(found, "__path__", ())):
            importlib.import_module(f"{name}.{module.name}")


RENAMED = {
    r"^network\.(parts\.0\.)?guides\.": "network.prior.parts.",
    r"^network\.parts\.(\d+)\.network\.": r"network.network.parts.\1.",
    r"\.leaning$": ".pseudo_counts",
    r"\.belief\.": ".gate.",
    r"\.unguided\.": ".without_prior.",
}
"""Tensors of version 0.1.0 and what they are called now; see `upgraded`."""


def upgraded(
    document: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A model of version 0.1.0 as it is described now; any other as it is.

    The prior was called a guide, every ensemble member had a copy of it, and the width of the
    conditionals had its message in it: two moments, and three numbers a component.
    """
    if not {"network", "conditionals"} <= document.keys():
        return document, tensors
    network, components = document["network"], None
    if "GuidedNetwork" in json.dumps(network):
        prior = default_prior(Schema.from_json(json.dumps(document["schema"])))
        assert prior is not None
        components, inner = prior.components, network.get("network")
        if inner is None:
            inner = {**network, "members": [member["network"] for member in network["members"]]}
        network = {"type": "NetworkWithPrior", "network": inner, "prior": describe(prior)}
        tensors = {_renamed(name): tensor for name, tensor in tensors.items()}
        tensors = {name: part for name, part in tensors.items() if ".guides." not in name}
    conditionals = _upgraded_heads(document["conditionals"], components)
    return {**document, "network": network, "conditionals": conditionals}, tensors


def _renamed(name: str) -> str:
    for old, new in RENAMED.items():
        name = re.sub(old, new, name)
    return name


def _upgraded_heads(old: dict[str, Any], components: int | None) -> dict[str, Any]:
    if "members" in old:
        members = [_upgraded_heads(member, components) for member in old["members"]]
        return {**old, "members": members}
    if "guided" not in old:  # of another kind, or up to date
        return old
    kept = {key: value for key, value in old.items() if key != "guided"}
    if components is not None:
        kept["width"] -= 2 + 3 * components
    return {**kept, "components": components}
