"""Loading a model of whatever kind from its folder."""

from pathlib import Path

from anyorder.errors import CheckpointError
from anyorder.images.model import ImageModel
from anyorder.saving.checkpoint import SavedModel, load_saved
from anyorder.tables.model import TableModel
from anyorder.text.model import TextModel, text_folder
from anyorder.training.settings import Device, check_device


def load(folder: str | Path, *, device: Device = None) -> TextModel | TableModel | ImageModel:
    """Loads a model of text, of a table or of images.

    Args:
        folder: Folder that `save` or `anyorder fit` wrote. If the training was stopped before it
            was saved, the last checkpoint is loaded. "shipped" is the model of text that comes with
            the package.
        device: Device to load it to: "cpu", "cuda", "mps" or a torch.device; None is the GPU if
            there is one.
    """
    loaded = as_model(read_saved(folder, device=device), folder)
    loaded.device = device
    return loaded


def read_saved(folder: str | Path, *, device: Device = None) -> SavedModel:
    """Reads the folder of a model, or the last checkpoint of its training."""
    return load_saved(_place(text_folder(folder)), device=check_device(device))


def as_model(saved: SavedModel, folder: str | Path) -> TextModel | TableModel | ImageModel:
    """The model of what was read from a folder, by the domain in its notes."""
    domain = saved.notes.get("domain")
    if domain == "text":
        return TextModel.from_saved(saved, folder)
    if domain == "table":
        return TableModel.from_saved(saved, folder)
    if domain == "image":
        return ImageModel.from_saved(saved, folder)
    raise CheckpointError(
        f'"{folder}" holds no model of text, of a table or of images. Read it with `load_model`.'
    )


def _place(folder: Path) -> Path:
    """Where the weights are: here, or in `training`: its first member, the last stage of that."""
    training = folder / "training"
    if (folder / "model.json").exists() or not training.is_dir():
        return folder
    first = training / "member-0"
    training = first if first.is_dir() else training
    stages = [stage for stage in sorted(training.glob("stage-*")) if any(stage.glob("step-*"))]
    return stages[-1] if stages else training
