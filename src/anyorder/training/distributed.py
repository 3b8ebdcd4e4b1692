"""Several processes that train one model together, on torch's own DDP and FSDP2.

`torchrun` starts them; nothing here does. Alone or together, the training loop is the same: a
`Team` of one has nothing to agree on.
"""

import atexit
import copy
import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anyorder.errors import AnyOrderError, ConfigError
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import PathNetwork
from anyorder.training.settings import place_and_number

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


class Team:
    """The processes that train together, seen from one of them.

    Args:
        device: Where this process computes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        _join(device)
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    def total(self, value: Tensor) -> float:
        """The sum of a number over all processes."""
        if not self.is_alone:
            value = value.clone()
            dist.all_reduce(value)
        return value.item()

    def greatest(self, *values: float) -> list[float]:
        """The greatest of each number over all processes: what they agree on."""
        if self.is_alone:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.tolist()

    def share(self, read: Callable[[], Any]) -> Any:
        """What the first process reads, or the error that it meets, in all processes."""
        if self.is_alone:
            return read()
        parcel: list[Any] = [None]
        if self.is_first:
            try:
                parcel = [read()]
            except AnyOrderError as error:
                parcel = [error]
        dist.broadcast_object_list(parcel, src=0, device=self.device)
        if isinstance(parcel[0], AnyOrderError):
            raise parcel[0]
        return parcel[0]

    def rows(self, size: int) -> slice:
        """The rows of a batch that are this process's."""
        return slice(self.rank * size // self.size, (self.rank + 1) * size // self.size)

    def place(self, model: AnyOrderModel, *, shard: bool) -> AnyOrderModel:
        """The model that this process trains: the same weights everywhere, or a share of them."""
        if shard and self.is_alone:
            raise ConfigError('`sharding` "fsdp" needs several processes: start with torchrun.')
        if self.is_alone:
            return model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
        return _sharded(model, self) if shard else model

    def wrap(self, loss: nn.Module) -> nn.Module:
        """The module whose backward averages gradients over the processes.

        A network must use all its parameters in every pass, as all networks here do.
        """
        if self.is_alone or any(_is_sharded(module) for module in loss.modules()):
            return loss
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(loss, device_ids=devices)


def _join(device: torch.device) -> None:
    """Joins the processes that torchrun started, once for the life of this one."""
    if place_and_number()[1] > 1 and dist.is_available() and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        import_module("torch.distributed.fsdp")  # after the group it would keep that alive
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(_leave)


def _leave() -> None:
    """Ends the group and its threads.

    A thread that lives on and lets go of a tensor while Python ends aborts the process.
    """
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


def _let_go(mesh: "DeviceMesh") -> None:
    """Takes a mesh's hold off its group: caches of torch keep the mesh to the end of Python."""
    getattr(mesh, "_pg_registry", {}).clear()


def _sharded(model: AnyOrderModel, team: Team) -> AnyOrderModel:
    """A copy of the model whose parts are shared out; the user's own stays whole.

    The network is gathered as one: it calls its blocks by several verbs, not by their forward.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(team.device.type, (team.size,))
    atexit.register(_let_go, mesh)  # what is registered last is done first: before `_leave`
    mine = copy.deepcopy(model)
    for part in (mine.network, mine.conditionals):
        # Given back after each forward, so that an evaluation never sees weights of before.
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    if isinstance(model.network, PathNetwork):
        for verb in ("encode", "ask", "tell"):
            register_fsdp_forward_method(mine.network, verb)
    return mine


@contextmanager
def syncing(loss: nn.Module, model: AnyOrderModel, *, last: bool) -> Iterator[None]:
    """Around a micro-batch: gradients travel after the last one only."""
    with ExitStack() as stack:
        if isinstance(loss, DistributedDataParallel) and not last:
            stack.enter_context(loss.no_sync())
        for part in (model.network, model.conditionals):
            if _is_sharded(part):
                part.set_requires_gradient_sync(last)
                stack.enter_context(warnings.catch_warnings())
                # It warns of logits that are a view, lest they be changed in place: they are not.
                warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        yield


def whole(tensor: Tensor) -> Tensor:
    """A tensor gathered from all processes, on the CPU."""
    full = tensor.full_tensor() if _is_shared_out(tensor) else tensor
    return full.detach().to("cpu", copy=True)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds; writing to it writes to the tensor."""
    return tensor.to_local() if _is_shared_out(tensor) else tensor


def like(value: Tensor, model: Tensor) -> Tensor:
    """A whole tensor, shared out as another one is."""
    value = value.to(model.device)
    if not _is_shared_out(model):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, model.device_mesh, model.placements)


# Modules and tensors that are shared out are told by their verbs: to import their classes takes
# half a second of every command, and nearly nobody has any.


def _is_sharded(part: object) -> TypeGuard["FSDPModule"]:
    """Whether it is an FSDPModule."""
    return hasattr(part, "set_requires_gradient_sync")


def _is_shared_out(tensor: Tensor) -> TypeGuard["DTensor"]:
    """Whether it is a DTensor."""
    return hasattr(tensor, "full_tensor")
