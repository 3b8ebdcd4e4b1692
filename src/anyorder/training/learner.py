"""The state of a training: a model, its optimiser, and the averages and copies of its weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from anyorder.errors import CheckpointError
from anyorder.inference.model import AnyOrderModel
from anyorder.saving.checkpoint import named_tensors
from anyorder.training.batches import MicroBatch
from anyorder.training.distributed import Team, like, local, syncing, whole
from anyorder.training.losses import Objective
from anyorder.training.settings import TrainingSettings, autocast

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW remembers of a parameter."""

AVERAGE_START = 10
"""The average over s steps has decay (1 + s) / (10 + s) at most: it forgets the first weights."""

UNDECAYED = (nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class SummedLoss(nn.Module):
    """The loss of a micro-batch as a forward, because that is where DDP and FSDP listen."""

    def __init__(self, model: AnyOrderModel, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, x: Tensor, *drawn: Tensor) -> Tensor:
        """The sum over the rows."""
        return self.objective.loss(self.model, x, drawn).sum()


class Learner:
    """Updates a model, and knows which weights it would return.

    Args:
        model: The model.
        objective: What is minimised.
        settings: How.
        team: Who takes part.
    """

    def __init__(
        self, model: AnyOrderModel, objective: Objective, settings: TrainingSettings, team: Team
    ) -> None:
        self.settings = settings
        self.team = team
        self.model = team.place(model, shard=settings.sharding == "fsdp")
        self.weights = named_tensors(self.model)
        named = self.model.named_parameters()
        self.parameters = {name: weight for name, weight in named if weight.requires_grad}
        self.optimizer = _optimizer(self.model, settings)
        self.average = self._copy(self.parameters) if settings.ema is not None else {}
        self.best: dict[str, Tensor] = {}
        self.rate = 0.0  # of the last step
        loss = SummedLoss(self.model, objective)
        if settings.compile:
            loss.compile()
        self.loss = team.wrap(loss).train()

    def learn(self, batches: Sequence[MicroBatch], rate: float) -> tuple[Tensor, Tensor]:
        """One step; gives this process's share of the loss, and the norm of the gradient.

        The gradient is that of the mean over the rows of all processes, however they are shared
        out: each adds the sum over its rows, divided by the number of all.
        """
        self.rate = rate
        total = torch.zeros((), device=self.team.device)
        for place, (x, drawn) in enumerate(batches, start=1):
            with syncing(self.loss, self.model, last=place == len(batches)):
                with autocast(self.settings.precision, self.team.device.type):
                    loss = self.loss(x, *drawn) / self.settings.batch
                # Times the number of processes, because their gradients are averaged.
                (loss * self.team.size).backward()
            total += loss.detach()
        return total, self._update()

    @torch.no_grad()
    def _update(self) -> Tensor:
        slopes = [w.grad for w in self.parameters.values() if w.grad is not None]
        norm = get_total_norm(slopes)
        if self.settings.clip is not None:
            clip_grads_with_norm_(self.parameters.values(), self.settings.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    @torch.no_grad()
    def remember(self, steps: int) -> None:
        """Moves the average towards the weights that `steps` steps led to."""
        if self.settings.ema is not None:
            decay = min(self.settings.ema, (1 + steps) / (AVERAGE_START + steps))
            mean = [local(tensor) for tensor in self.average.values()]
            torch._foreach_lerp_(mean, [local(w) for w in self.parameters.values()], 1 - decay)

    @contextmanager
    def answering(
        self, shield: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Iterator[AnyOrderModel]:
        """The model as it would answer now: with the average of its weights, without dropout.

        Args:
            shield: A context that an interrupt waits for the end of: weights are exchanged in it.
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
        """Keeps the weights that would be returned now."""
        self.best = self._copy({**self.weights, **self.average})

    def result(self) -> dict[str, Tensor]:
        """The weights to return, whole: the best if they were kept, else the average or the last.

        All processes must ask.
        """
        chosen = self.best or {**self.weights, **self.average}
        return {name: whole(tensor) for name, tensor in chosen.items()}

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, whole. All processes must ask."""
        groups = {"weights": self.weights, "average": self.average, "best": self.best}
        for key in MOMENTS:
            groups[key] = {
                name: self.optimizer.state[weight][key]
                for name, weight in self.parameters.items()
                if weight in self.optimizer.state
            }
        return {
            f"{group}/{name}": whole(tensor)
            for group, members in groups.items()
            for name, tensor in members.items()
        }

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what `state` gave."""
        groups: dict[str, dict[str, Tensor]] = {}
        for place, tensor in state.items():
            group, _, name = place.partition("/")
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
            self.optimizer.state[weight] = {**moments, "step": count}

    def _copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    @torch.no_grad()
    def _exchange(self) -> None:
        """The average takes the place of the weights, one tensor at a time, and back again."""
        for name, mean in self.average.items():
            weight, average = local(self.parameters[name]), local(mean)
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)


def _optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    free: dict[nn.Parameter, bool] = {}  # of weight decay; a tied weight is free if one use is
    for owner in model.modules():
        for name, weight in owner.named_parameters(recurse=False):
            alone = isinstance(owner, UNDECAYED) or name == "bias" or weight.ndim < 2
            free[weight] = free.get(weight, False) or alone
    trained = [weight for weight in free if weight.requires_grad]
    groups = [
        {"params": [w for w in trained if not free[w]], "weight_decay": settings.weight_decay},
        {"params": [w for w in trained if free[w]], "weight_decay": 0.0},
    ]
    rate, betas = settings.learning_rate, settings.betas
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)


@torch.no_grad()
def _put(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    if tensors.keys() != values.keys():
        odd = sorted(tensors.keys() ^ values.keys())[0]
        raise CheckpointError(f'The checkpoint and the model differ in "{odd}".')
    for name, tensor in tensors.items():
        tensor.copy_(like(values[name], tensor))
