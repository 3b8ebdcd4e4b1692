"""A device that is only simulated: tensors that compute on the CPU, say "meta", and refuse others.

A tensor of an accelerator refuses to compute with one of the CPU, but for single numbers. So do
these, and unlike those of torch's own `meta` device they have values: losses whose shapes depend on
values run too.
"""

from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
"""Operations from one device to another."""


class Simulated(Tensor):
    """A tensor on the simulated device; `own` has its values."""

    @staticmethod
    def __new__(cls, own):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            own.shape,
            strides=own.stride(),
            storage_offset=own.storage_offset(),
            dtype=own.dtype,
            device=DEVICE,
            requires_grad=own.requires_grad,
        )

    def __init__(self, own):
        self.own = own

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


class Simulation(TorchDispatchMode):
    """Makes what is created on the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


def computed(func, args, kwargs):
    """The result of an operation, on the device of its inputs or on the one that it names."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    ours = [one for one in tensors if isinstance(one, Simulated)]
    others = [one for one in tensors if not isinstance(one, Simulated) and one.dim()]
    if ours and others and func not in COPIES:
        raise RuntimeError(f"{func} got tensors of the device and of the CPU")
    device = kwargs.get("device")
    there = bool(ours) if device is None else torch.device(device) == DEVICE
    if func is torch.ops.aten.copy_.default:
        there = isinstance(args[0], Simulated)
    own = {"device": torch.device("cpu")} if device is not None else {}
    bare_args, bare = tree_map(lambda x: x.own if isinstance(x, Simulated) else x, (args, kwargs))
    found = func(*bare_args, **{**bare, **own})
    if not there:
        return found
    found = tree_map(lambda x: Simulated(x) if isinstance(x, Tensor) else x, found)
    return return_and_correct_aliasing(func, args, kwargs, found) if ours else found


class Literals(TorchFunctionMode):
    """Takes numbers of Python to the device and back, which no dispatcher sees."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            return func(*args, **{**kwargs, "device": "cpu"}).to(kwargs["device"])
        if func is Tensor.tolist and isinstance(args[0], Simulated):
            return args[0].own.tolist()
        return func(*args, **kwargs)


@contextmanager
def simulated(module: nn.Module):
    """Moves a module to the simulated device for a block, where tensors can be created."""
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                part._parameters[name] = nn.Parameter(Simulated(weight.detach().clone()))
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = Simulated(buffer.clone())
    with Simulation(), Literals():
        yield
