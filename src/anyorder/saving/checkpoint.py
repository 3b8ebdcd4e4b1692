"""Saved models and run folders: JSON and safetensors, written atomically; nothing is pickled.

A saved model is a folder with `model.json` and `weights.safetensors`. The former describes the
schema, the network, the conditionals and the protocol. The description of an object is its class
name and the arguments of its constructor. An object that is saved (a law, a protocol, a network)
keeps every argument in an attribute of the same name, so its description is read off the signature,
and rebuilding it is one call. Nothing is ever unpickled or evaluated.

A *pair* is a JSON document with the tensors that belong to it. The document carries the checksum of
the tensors and one of itself. A pair is replaced so that one complete pair exists at every moment:
new tensors are written beside the old ones, their document is renamed into place, and only then do
they take the old tensors' name.

The folder of a training run holds numbered folders of pairs, each written aside and then renamed,
and the file `latest`, which names the newest and the one before it. A damaged one is skipped.
"""

import hashlib
import importlib
import inspect
import json
import logging
import os
import pkgutil
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from anyorder import __version__
from anyorder.errors import AnotherRunError, CheckpointError, ConfigError, nearest
from anyorder.heads.distributions import Conditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import DecompositionProtocol
from anyorder.lattice.query_laws import QueryLaw
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.priors.contract import Prior
from anyorder.priors.version_0_1 import prior_of_0_1
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
    beside: dict[str, Tensor]


BESIDE = "beside/"
"""Prefix of the names of tensors that are saved beside the weights."""


def save_model(
    folder: str | Path,
    model: AnyOrderModel,
    *,
    law: Law | None = None,
    notes: Mapping[str, Any] | None = None,
    beside: Mapping[str, Tensor] | None = None,
) -> None:
    """Saves a model, and replaces one that is already there.

    Args:
        folder: Folder to save in, created if needed. Other files in it are left alone.
        model: The model.
        law: Law of the queries that it was trained on.
        notes: Anything that JSON can hold.
        beside: Other tensors to save with it.
    """
    document = describe_model(model, law=law, notes=notes)
    tensors = {name: tensor.detach().cpu() for name, tensor in named_tensors(model).items()}
    tensors |= {BESIDE + name: tensor for name, tensor in (beside or {}).items()}
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
    names = [name for name in tensors if name.startswith(BESIDE)]
    beside = {name.removeprefix(BESIDE): tensors.pop(name) for name in names}
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
    return SavedModel(model.to(device).eval(), law, notes, version, beside)


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
        prior = prior_of_0_1(Schema.from_json(json.dumps(document["schema"])))
        components, inner = prior.components, network.get("network")
        if inner is None:
            inner = {**network, "members": [member["network"] for member in network["members"]]}
        network = {"type": "NetworkWithPrior", "network": inner, "prior": describe(prior)}
        for old, new in RENAMED.items():
            tensors = {re.sub(old, new, name): part for name, part in tensors.items()}
        tensors = {name: part for name, part in tensors.items() if ".guides." not in name}
    conditionals = _upgraded_heads(document["conditionals"], components)
    return {**document, "network": network, "conditionals": conditionals}, tensors


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


FORMAT = 1
"""Version of the layout; increased when an old folder could be misread."""

TENSORS = {"model": "weights", "training": "training"}
"""Kinds of pairs: the stem of the document's file name, and of that of the tensors."""

log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """A document and its tensors."""

    document: dict[str, Any]
    tensors: dict[str, Tensor]


def make_folder(folder: Path) -> None:
    """Creates a folder if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f'"{folder}" cannot be made: {error.strerror or error}. Name another folder.'
        ) from error


def write_pair(
    folder: Path, kind: str, document: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Writes a pair, and replaces the one that is there, if any."""
    stem = TENSORS[kind]
    now, following = folder / f"{stem}.safetensors", folder / f"{stem}.next.safetensors"
    _settle(folder, kind)
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, following)
    except SafetensorError as error:
        raise CheckpointError(
            f'"{following}" cannot be written ({error}). What was saved before is still there.'
        ) from error
    _flush(following)
    sealed = {
        "format": FORMAT,
        "anyorder": __version__,
        **document,
        "tensors": _file_checksum(following),
    }
    written = folder / f"{kind}.json"
    sealed["checksum"] = _checksum(sealed)
    replace_text(written, json.dumps(sealed, ensure_ascii=False, indent=1) + "\n")
    shutil.copymode(written, following)  # safetensors writes for the owner's eyes only
    following.replace(now)
    _flush(folder)


def read_pair(folder: Path, kind: str) -> Pair:
    """Reads a pair; the error of a damaged one says what is wrong and what to do."""
    document = _read_document(folder, kind)
    path = _belonging(folder, kind, document["tensors"])
    if path is None:
        name = f"{TENSORS[kind]}.safetensors"
        state = "is damaged or is another's" if (folder / name).exists() else "is missing"
        raise CheckpointError(
            f'The checkpoint "{folder}" is refused: {name} {state}. '
            "Put a complete copy there, or save it again."
        )
    try:
        return Pair(document, load_file(path))
    except SafetensorError as error:
        raise CheckpointError(f'"{path}" is not a safetensors file ({error}).') from error


class RunFolder:
    """The checkpoints of one training run: the newest and the one before it.

    The folder is created when something is saved.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._good: str | None = None  # the newest checkpoint that is known to be complete

    @contextmanager
    def held(self) -> Iterator[None]:
        """Locks the folder against other processes; the system frees the lock at their end."""
        make_folder(self.folder)
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise CheckpointError(
                f'Another process is training into "{self.folder}". Wait for it, or train into '
                "another folder."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def names(self) -> list[str]:
        """Returns the names of the checkpoints, the newest first."""
        pointer = self.folder / "latest"
        listed = pointer.read_text(errors="replace").split() if pointer.exists() else []
        there = [
            path.name
            for path in map(self.folder.joinpath, listed)
            if path.parent == self.folder and path.is_dir()
        ]
        if there:
            return there
        # The pointer is lost or dangling; the checkpoints are still good.
        return sorted((path.name for path in self.folder.glob("step-*")), reverse=True)

    def refuse_another(self, parts: Sequence[str] = ()) -> None:
        """Refuses a folder of another layout; `parts` are the subfolders of a run in parts."""
        inside = [*self.folder.glob("*/latest"), *self.folder.glob("*/*/latest")]
        found = {path.relative_to(self.folder).parts[0] for path in inside}
        if (parts and self.names()) or not found <= set(parts):
            raise AnotherRunError(
                f'"{self.folder}" holds another run. Train into another folder, or with the '
                "settings of that run."
            )

    def load(self, *kinds: str) -> list[Pair] | None:
        """Returns the pairs of the newest complete checkpoint; None without any checkpoint."""
        errors = []
        for name in self.names():
            try:
                pairs = [read_pair(self.folder / name, kind) for kind in kinds]
            except CheckpointError as error:
                errors.append(str(error))
                log.warning("%s The one before it is tried.", error)
                continue
            self._good = name
            return pairs
        if errors:
            raise CheckpointError(
                f'No checkpoint in "{self.folder}" is complete. {errors[0]} '
                "To train from the start, delete the folder."
            )
        return None

    def save(self, step: int, pairs: Mapping[str, Pair]) -> None:
        """Adds a checkpoint, and deletes all but the one before it."""
        aside = self.folder / f".step-{step:08d}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for kind, pair in pairs.items():
            write_pair(aside, kind, pair.document, pair.tensors)
        name = self._free_name(step)
        aside.rename(self.folder / name)
        _flush(self.folder)
        kept = [name] if self._good is None else [name, self._good]
        replace_text(self.folder / "latest", "\n".join(kept) + "\n")
        self._good = name
        self._prune(kept)

    def _free_name(self, step: int) -> str:
        """Returns an unused name: a step may have been saved before, or its folder be damaged."""
        name, number = f"step-{step:08d}", 1
        while (self.folder / name).exists():
            number += 1
            name = f"step-{step:08d}-{number}"
        return name

    def _prune(self, kept: list[str]) -> None:
        for path in [*self.folder.glob("step-*"), *self.folder.glob(".step-*")]:
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)


def replace_text(path: Path, text: str) -> None:
    """Writes a file aside, then renames it: a reader sees the old text or the new."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    _flush(aside)
    aside.replace(path)
    _flush(path.parent)


def difference(saved: Any, now: Any, place: str = "") -> str | None:
    """Returns the first field in which two documents differ, in words; None if there is none."""
    if isinstance(saved, dict) and isinstance(now, dict):
        dot = f"{place}." if place else ""
        parts = [(saved.get(key), now.get(key), f"{dot}{key}") for key in {**saved, **now}]
    elif isinstance(saved, list) and isinstance(now, list):
        if len(saved) != len(now):
            return f"`{place}` has {len(saved)} entries there and {len(now)} now"
        parts = [(*pair, f"{place}[{i}]") for i, pair in enumerate(zip(saved, now, strict=True))]
    else:
        return None if saved == now else f"`{place}` is {_short(saved)} there and {_short(now)} now"
    return next((words for part in parts if (words := difference(*part))), None)


def as_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document as it will be read back; raises if JSON cannot hold it."""
    try:
        return json.loads(json.dumps(document))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"This cannot be saved as JSON: {error}. Use plain values.") from None


def _settle(folder: Path, kind: str) -> None:
    """Completes a replacement that was interrupted between its two renames."""
    following = folder / f"{TENSORS[kind]}.next.safetensors"
    try:
        document = _read_document(folder, kind)
    except CheckpointError:
        return
    if following.exists() and _belonging(folder, kind, document["tensors"]) == following:
        following.replace(folder / f"{TENSORS[kind]}.safetensors")


def _read_document(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / f"{kind}.json"
    if not path.exists():
        raise CheckpointError(f'"{folder}" holds no checkpoint: {_why_none(folder, path)}')
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version, checksum = document["format"], document.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(
            f'"{path}" is cut off or is not of anyorder. Put a complete copy there, '
            "or save it again."
        ) from None
    if version != FORMAT:
        raise CheckpointError(
            f'"{path}" has format {version!r} and this version of anyorder reads {FORMAT}: '
            f"install anyorder {document.get('anyorder')}, or save it again with this version."
        )
    if checksum != _checksum(document):
        raise CheckpointError(
            f'"{path}" was altered after it was saved. Put an unaltered copy there, '
            "or save it again."
        )
    return document


def _why_none(folder: Path, document: Path) -> str:
    """Returns why nothing can be read from a folder, and what to do."""
    if folder.is_file():
        return "it is a file. The folder of a model comes first, then the file to ask about."
    if folder.is_dir():
        return f"{document.name} is missing. `anyorder fit` makes one."
    beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
    names = [str(folder.parent / path.name) for path in beside if path.is_dir()]
    close = nearest(folder, [*names, "shipped"])
    return f"there is no such folder.{close or ' `anyorder fit` makes one.'}"


def _belonging(folder: Path, kind: str, checksum: str) -> Path | None:
    """Returns the file of the tensors that a document was written with, under either name."""
    for name in (f"{TENSORS[kind]}.safetensors", f"{TENSORS[kind]}.next.safetensors"):
        if (folder / name).exists() and _file_checksum(folder / name) == checksum:
            return folder / name
    return None


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk (fsync)."""
    if os.name == "nt":  # Windows cannot flush a file opened for reading, nor a folder
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."
