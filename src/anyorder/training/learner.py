"""The learner: a model in training, its optimiser, and the averages and copies of its weights."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.adamw import adamw

from anyorder.errors import CheckpointError
from anyorder.inference.model import AnyOrderModel
from anyorder.saving.checkpoint import named_tensors
from anyorder.training.batches import MicroBatch
from anyorder.training.distributed import Team, like, local, syncing, whole
from anyorder.training.losses import Objective
from anyorder.training.settings import TrainingSettings, autocast

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""The state that AdamW keeps for a parameter."""

EPSILON = 1e-8
"""AdamW's least deviation of a gradient."""

AVERAGE_START = 10
"""After s steps the moving average has decay (1 + s) / (10 + s) at most: it forgets the start."""

UNDECAYED = (nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Modules without weight decay."""

DENORMAL = 1e-40
"""A denormal float32."""


class SummedLoss(nn.Module):
    """The loss of a micro-batch as a module: DDP and FSDP hook into `forward`."""

    def __init__(self, model: AnyOrderModel, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, x: Tensor, *drawn: Tensor) -> Tensor:
        """Returns the sum of the losses of the rows."""
        return self.objective.loss(self.model, x, drawn).sum()


class Learner:
    """Updates a model, and keeps the weights that the training will return."""

    def __init__(
        self, model: AnyOrderModel, objective: Objective, settings: TrainingSettings, team: Team
    ) -> None:
        self.settings = settings
        self.team = team
        self.model = team.place(model, shard=settings.sharding == "fsdp")
        self.weights = named_tensors(self.model)
        named = self.model.named_parameters()
        self.parameters = {name: weight for name, weight in named if weight.requires_grad}
        self.optimizer = AdamW(self.parameters, undecayed(self.model), settings)
        self.average = self._copy(self.parameters) if settings.ema is not None else {}
        self.best: dict[str, Tensor] = {}
        self.rate = 0.0  # of the last step
        loss = SummedLoss(self.model, objective)
        if settings.compile:
            loss.compile()
        self.loss = team.wrap(loss).train()

    def learn(self, batches: Sequence[MicroBatch], rate: float) -> tuple[Tensor, Tensor]:
        """Takes one step; returns this process's part of the loss, and the gradient's norm.

        The gradient is that of the mean over the rows of all processes, however the rows are
        divided: each process adds the sum over its rows, divided by the number of all rows.
        """
        self.rate = rate
        total = torch.zeros((), device=self.team.device)
        for number, (x, drawn) in enumerate(batches, start=1):
            with syncing(self.loss, self.model, last=number == len(batches)):
                with autocast(self.settings.precision, self.team.device.type):
                    loss = self.loss(x, *drawn) / self.settings.batch
                # Times the number of processes, because their gradients are averaged.
                (loss * self.team.size).backward()
            total += loss.detach()
        return total, self._update()

    @torch.no_grad()
    def _update(self) -> Tensor:
        norm = get_total_norm([w.grad for w in self.parameters.values() if w.grad is not None])
        if self.settings.clip is not None:
            clip_grads_with_norm_(self.parameters.values(), self.settings.clip, norm)
        self.optimizer.step(self.rate)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    @torch.no_grad()
    def update_average(self, steps: int) -> None:
        """Moves the average towards the weights after `steps` steps."""
        if self.settings.ema is not None:
            decay = min(self.settings.ema, (1 + steps) / (AVERAGE_START + steps))
            mean = [local(tensor) for tensor in self.average.values()]
            torch._foreach_lerp_(mean, [local(w) for w in self.parameters.values()], 1 - decay)

    @contextmanager
    def answering(
        self, shield: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Iterator[AnyOrderModel]:
        """Yields the model as it would be returned now: with averaged weights, without dropout.

        Args:
            shield: Context whose end interrupts wait for; weights are exchanged in it.
        """
        exchanged = False
        try:
            with shield():
                self._exchange()
                exchanged = True
            self.model.eval()
            with torch.no_grad():
                yield self.model
        finally:
            with shield():
                if exchanged:
                    self._exchange()
            self.model.train()

    @torch.no_grad()
    def keep_best(self) -> None:
        """Copies the weights that would be returned now."""
        self.best = self._copy({**self.weights, **self.average})

    def result(self) -> dict[str, Tensor]:
        """Returns the gathered weights: the best if they were kept, else the average or the last.

        All processes must call this.
        """
        chosen = self.best or {**self.weights, **self.average}
        return {name: whole(tensor) for name, tensor in chosen.items()}

    def state(self) -> dict[str, Tensor]:
        """Returns all tensors that the next step depends on, gathered. All processes must call."""
        groups = {"weights": self.weights, "average": self.average, "best": self.best}
        for key in MOMENTS:
            groups[key] = {name: state[key] for name, state in self.optimizer.state.items()}
        return {
            f"{group}/{name}": whole(tensor)
            for group, tensors in groups.items()
            for name, tensor in tensors.items()
        }

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        groups: dict[str, dict[str, Tensor]] = {}
        for path, tensor in state.items():
            group, _, name = path.partition("/")
            groups.setdefault(group, {})[name] = tensor
        _put(self.weights, groups.get("weights", {}))
        _put(self.average, groups.get("average", {}))
        if "best" in groups:
            self.best = self._copy(self.weights)
            _put(self.best, groups["best"])
        for name in groups.get("step", {}):
            weight = self.parameters[name]
            moments = {key: like(groups[key][name], weight) for key in MOMENTS[:2]}
            count = groups["step"][name].to(weight.device)
            self.optimizer.state[name] = {**moments, "step": count}

    def _copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    @torch.no_grad()
    def _exchange(self) -> None:
        """Exchanges the weights and their average, one tensor at a time."""
        for name, mean in self.average.items():
            weight, average = local(self.parameters[name]), local(mean)
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)


class AdamW:
    """AdamW (Loshchilov and Hutter, 2019), by torch's fused kernel.

    `torch.optim.AdamW` takes the same steps, and imports torch's compiler for them: two seconds of
    every first fit.

    Args:
        parameters: Parameters by name.
        free: Parameters without weight decay.
        settings: Betas and weight decay.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        free: Collection[nn.Parameter],
        settings: TrainingSettings,
    ) -> None:
        self.parameters, self.settings = parameters, settings
        self.decays = {
            name: 0.0 if weight in free else settings.weight_decay
            for name, weight in parameters.items()
        }
        self.state: dict[str, dict[str, Tensor]] = {}
        """Moments of the parameters that had a gradient, in the order of `MOMENTS`."""

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Moves the parameters that have a gradient, and drops the gradients."""
        beta1, beta2 = self.settings.betas
        found = {name: w for name, w in self.parameters.items() if w.grad is not None}
        for name, weight in found.items():
            if name not in self.state:
                moments = [torch.zeros_like(weight) for _ in range(2)]
                count = torch.zeros((), device=weight.device)
                self.state[name] = dict(zip(MOMENTS, (*moments, count), strict=True))
        for decay in set(self.decays.values()):
            names = [name for name in found if self.decays[name] == decay]
            if not names:
                continue
            means, squares, counts = ([self.state[n][key] for n in names] for key in MOMENTS)
            weights = [found[name] for name in names]
            adamw(
                [*weights],
                [weight.grad for weight in weights if weight.grad is not None],
                means,
                squares,
                [],
                counts,
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=rate,
                weight_decay=decay,
                eps=EPSILON,
                maximize=False,
            )
        for weight in found.values():
            weight.grad = None


def undecayed(model: nn.Module) -> set[nn.Parameter]:
    """Returns the biases, norms and embeddings; a tied weight is one if one of its uses is."""
    return {
        weight
        for owner in model.modules()
        for name, weight in owner.named_parameters(recurse=False)
        if isinstance(owner, UNDECAYED) or name == "bias" or weight.ndim < 2
    }


@torch.no_grad()
def _put(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    if tensors.keys() != values.keys():
        odd = sorted(tensors.keys() ^ values.keys())[0]
        raise CheckpointError(f'The checkpoint and the model differ in "{odd}".')
    for name, tensor in tensors.items():
        tensor.copy_(like(values[name], tensor))


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Computes with zeros in place of denormal numbers, in this thread.

    Where attention is sharp, gradients underflow to denormal floats (below 1e-38), which a CPU
    computes in microcode: a step of a trained masked network on text took twice its time. They do
    not change a sum with any other number.
    """
    before = is_flushing()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def is_flushing() -> bool:
    """Tests whether denormal numbers are computed as zeros."""
    return not torch.tensor(DENORMAL).mul(1).item()
