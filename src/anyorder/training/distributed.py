"""Distributed training: the processes of one training, on torch's own DDP and FSDP2.

`torchrun` starts the processes; nothing here does. The training loop is the same for one process
and for many: a `Team` of one has nothing to communicate.
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
from anyorder.training.settings import rank_and_world_size

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


class Team:
    """The process group of a training, seen from one of its processes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        _join(device)
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    @property
    def is_first(self) -> bool:
        """True in the process that writes."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """True if there is one process only."""
        return self.size == 1

    def total(self, value: Tensor) -> float:
        """Returns the sum of a number over all processes."""
        if not self.is_alone:
            value = value.clone()
            dist.all_reduce(value)
        return value.item()

    def greatest(self, *values: float) -> list[float]:
        """Returns the maximum of each number over all processes, so that all use the same."""
        if self.is_alone:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.tolist()

    def share(self, read: Callable[[], Any]) -> Any:
        """Broadcasts what the first process reads, or raises its error in all processes."""
        if self.is_alone:
            return read()
        message: list[Any] = [None]
        if self.is_first:
            try:
                message = [read()]
            except AnyOrderError as error:
                message = [error]
        dist.broadcast_object_list(message, src=0, device=self.device)
        if isinstance(message[0], AnyOrderError):
            raise message[0]
        return message[0]

    def rows(self, size: int) -> slice:
        """Returns the slice of a batch that belongs to this process."""
        return slice(self.rank * size // self.size, (self.rank + 1) * size // self.size)

    def place(self, model: AnyOrderModel, *, shard: bool) -> AnyOrderModel:
        """Returns the model that this process trains: all of its weights, or a shard of them."""
        if shard and self.is_alone:
            raise ConfigError('`sharding` "fsdp" needs several processes: start with torchrun.')
        if self.is_alone:
            return model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
        return _sharded(model, self) if shard else model

    def wrap(self, loss: nn.Module) -> nn.Module:
        """Wraps a loss so that its backward pass averages gradients over the processes.

        A network must use all its parameters in every pass, as all networks here do.
        """
        if self.is_alone or any(_is_sharded(module) for module in loss.modules()):
            return loss
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(loss, device_ids=devices)


def _join(device: torch.device) -> None:
    """Joins the process group that torchrun started, once in the life of this process."""
    if rank_and_world_size()[1] > 1 and dist.is_available() and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        import_module("torch.distributed.fsdp")  # imported later, it would keep the group alive
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(_leave)


def _leave() -> None:
    """Destroys the process group and its threads.

    A thread that outlives Python's shutdown and then frees a tensor aborts the process.
    """
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


def _release_groups(mesh: "DeviceMesh") -> None:
    """Drops a mesh's references to its groups: torch caches the mesh until Python ends."""
    getattr(mesh, "_pg_registry", {}).clear()


def _sharded(model: AnyOrderModel, team: Team) -> AnyOrderModel:
    """Returns a copy of the model whose weights are sharded; the user's model stays whole.

    The network is gathered as a whole, because it calls its blocks by other methods than forward.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(team.device.type, (team.size,))
    atexit.register(_release_groups, mesh)  # registered last, so it runs before `_leave`
    sharded = copy.deepcopy(model)
    for part in (sharded.network, sharded.conditionals):
        # Resharded after each forward, so that an evaluation never sees stale weights.
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    if isinstance(model.network, PathNetwork):
        for method in ("encode", "ask", "tell"):
            register_fsdp_forward_method(sharded.network, method)
    return sharded


@contextmanager
def syncing(loss: nn.Module, model: AnyOrderModel, *, last: bool) -> Iterator[None]:
    """Synchronises gradients after the last micro-batch of a step only."""
    with ExitStack() as stack:
        if isinstance(loss, DistributedDataParallel) and not last:
            stack.enter_context(loss.no_sync())
        for part in (model.network, model.conditionals):
            if _is_sharded(part):
                part.set_requires_gradient_sync(last)
                stack.enter_context(warnings.catch_warnings())
                # FSDP warns that outputs which are views must not be changed in place: none is.
                warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        yield


def whole(tensor: Tensor) -> Tensor:
    """Returns a tensor gathered from all processes, on the CPU."""
    full = tensor.full_tensor() if _is_dtensor(tensor) else tensor
    return full.detach().to("cpu", copy=True)


def local(tensor: Tensor) -> Tensor:
    """Returns the shard of a tensor that this process holds, as a view."""
    return tensor.to_local() if _is_dtensor(tensor) else tensor


def like(value: Tensor, model: Tensor) -> Tensor:
    """Returns a whole tensor with the device and the sharding of another one."""
    value = value.to(model.device)
    if not _is_dtensor(model):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, model.device_mesh, model.placements)


# Sharded modules and tensors are recognised by their methods: importing their classes would cost
# every command half a second, and few trainings are sharded.


def _is_sharded(part: object) -> TypeGuard["FSDPModule"]:
    """Tests for an FSDPModule."""
    return hasattr(part, "set_requires_gradient_sync")


def _is_dtensor(tensor: Tensor) -> TypeGuard["DTensor"]:
    """Tests for a DTensor."""
    return hasattr(tensor, "full_tensor")
