r"""Latent classes over all columns: the general location mixture.

Every row has a class z of share pi_z that is never seen. Given z, levels of categories are
independent with probabilities theta_z, and numbers are normal: jointly, or independent where they
are many. For any evidence e

    p(z | x_e) = pi_z prod_c theta_zc(x_c) N_z(numbers of e) / sum of the same,
    p(x_i | x_e) = sum_z p(z | x_e) p(x_i | z, numbers of e),

so log class weights along a path are an exclusive cumulative sum, and what is missing is not in the
product. Answers agree with each other: they are conditionals of one joint distribution.

Classes are fitted by expectation maximisation. Every class is split in two, all are fitted anew,
and so on as long as left-out rows become more probable. At last tables and centers are moved, as
little as possible, so that without evidence a level has the smoothed frequency of its column and a
number its mean, exactly.

References:
    Olkin and Tate (1961): the general location model.
    Dempster, Laird and Rubin (1977), section 4.3: mixtures.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PriorMessage
from anyorder.priors.class_fit import AT_LAST, Classes, ClassFit, Layout
from anyorder.priors.latent import FOLDS, Cells, LatentPrior, balanced, centered
from anyorder.priors.moments import conditioned, from_factor, in_rows
from anyorder.priors.normals import LEAST, Posterior
from anyorder.priors.scales import Units
from anyorder.variables import Schema

MOST_CLASSES, MOST_TABLE = 128, 2**22
"""Largest number of classes, and of entries of their padded tables."""

MOST_JOINT, MOST_ENTRIES, MOST_PATTERNS = 24, 2**14, 48
"""Most numbers that are joint given the class, entries of their covariances, which are decomposed a
row, and sets of missing values among them, each of which takes a round of its own."""

PSEUDO_COUNTS, FEW_ROWS = (0.5, 2.0, 0.1, 0.02), 3000
"""Rows of each class, beside its own, that are as all rows are: candidates. The first serves where
rows are not so few, and the choice makes little difference."""

FEWEST = 20
"""Fewest rows by which the number of classes is chosen; of fewer there is one."""


@dataclass(frozen=True)
class ClassState:
    """Log weights of the classes given what is known, and the numbers that are joint.

    Args:
        logs: Shape ``(rows, classes)``.
        fold: Parameters of each row. Shape ``(rows,)``.
        numbers: Distribution of the joint numbers; None if there are none.
    """

    logs: Tensor
    fold: Tensor
    numbers: Posterior | None

    def at(self, rows: Tensor) -> "ClassState":
        """Selects rows."""
        numbers = None if self.numbers is None else self.numbers.at(rows)
        return ClassState(self.logs[rows], self.fold[rows], numbers)


class LatentClasses(LatentPrior):
    """Mixture of classes over all columns; see the module.

    Args:
        schema: The variables; context is not read.
        classes: Number of classes; `fit` chooses it.
        joint: True for numbers that are joint given the class; `fit` chooses it.
        balanced: See `LatentPrior`.
        densities: See `LatentPrior`.

    Example:
        >>> from anyorder.variables import Variable
        >>> prior = LatentClasses(Schema(tuple(Variable.categorical(n, [0, 1]) for n in "ab")))
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]).repeat(500, 1)
        >>> prior.fit(x, torch.ones_like(x, dtype=torch.bool))
        >>> state = prior.eval().encode(x[:1], torch.tensor([[True, False]]))
        >>> prior.ask(state, torch.tensor([[1]])).levels.exp().round(decimals=2)
        tensor([[[1., 0.]]])
    """

    parameters_type = Classes

    joint_numbers: Tensor
    joint_at: Tensor
    logs: Tensor
    tables: Tensor
    centers: Tensor
    variances: Tensor
    covariances: Tensor

    def __init__(
        self,
        schema: Schema,
        *,
        classes: int = 1,
        joint: bool = False,
        balanced: bool = True,
        densities: bool = True,
    ) -> None:
        super().__init__(schema, balanced=balanced, densities=densities)
        numbers = [variable for variable in schema if variable.kind == "continuous"]
        asked = [variable for variable in numbers if not variable.context]
        self.can_be_joint = [place for place, variable in enumerate(asked) if not variable.atoms]
        size = len(self.can_be_joint) if joint else 0
        logs = torch.zeros(classes).log_softmax(dim=0)
        blocks = torch.eye(size).repeat(classes, 1, 1)
        self._keep(joint, Classes(logs, *self._even(classes), blocks))

    def _keep(self, joint: bool, found: Classes) -> None:
        """Takes over classes; those of a fit may be of another number than before."""
        self.classes, self.joint = len(found.logs), joint
        places = torch.tensor(self.can_be_joint if joint else [], dtype=torch.long)
        places = places.to(self.start.device)
        joint_at = torch.full_like(self.start, -1)
        joint_at[self.numbers[places]] = torch.arange(len(places), device=places.device)
        self.register_buffer("joint_numbers", places, persistent=False)
        self.register_buffer("joint_at", joint_at, persistent=False)
        self._register(self.classes, found)

    def fit(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        *,
        units: Units | None = None,  # noqa: ARG002
    ) -> None:
        """Fits classes to all rows, and to all but those of each fold; see `Prior.fit`.

        Their number, and whether numbers are joint, is chosen by the rows of the first fold.
        Numbers stay normal scores.
        """
        weights = torch.ones(len(x), device=x.device) if weights is None else weights
        used = weights > 0
        x, have, weights = x[used], have[used], in_rows(weights[used])
        cells, fold = self._cells(x, have, weights), self._dealt(x)
        first, left_out = cells.at(fold != 0), cells.at(fold == 0)
        candidates = PSEUDO_COUNTS if len(x) < FEW_ROWS else PSEUDO_COUNTS[:1]
        kinds = [(joint, more) for joint in self._kinds(cells) for more in candidates]
        choices = [(*self._chosen(first, left_out, *kind), kind) for kind in kinds]
        _, classes, found, (joint, more) = max(choices, key=lambda choice: choice[0])

        def fitted(rows: Tensor) -> Classes:
            return self._fitted(ClassFit(cells.at(rows), self._layout(joint), more), classes)

        folds = [found, *(fitted(fold != number) for number in range(1, FOLDS))]
        self._keep(joint, fitted(fold >= 0))
        self._folds = Classes(*(torch.stack(part).float() for part in zip(*folds, strict=True)))

    def _kinds(self, cells: Cells) -> list[bool]:
        """Returns the possible kinds: numbers independent given the class, and joint."""
        if not 2 <= len(self.can_be_joint) <= MOST_JOINT:
            return [False]
        sets = cells.there[:, self.can_be_joint].unique(dim=0)
        return [True, False] if len(sets) <= MOST_PATTERNS else [False]

    def _layout(self, joint: bool) -> Layout:
        numbers = torch.arange(len(self.numbers), device=self.start.device)
        is_joint = torch.zeros_like(numbers, dtype=torch.bool)
        is_joint[self.can_be_joint] = joint
        return Layout(self.category, self.values, numbers[is_joint], numbers[~is_joint])

    def _chosen(
        self, cells: Cells, left_out: Cells, joint: bool, more: float
    ) -> tuple[float, int, Classes]:
        """Log-likelihood of left-out rows, number of classes, and the classes themselves."""
        fit, unseen = (ClassFit(part, self._layout(joint), more) for part in (cells, left_out))
        most = min(MOST_CLASSES, MOST_TABLE // max(1, self.level.numel()))
        if joint:
            most = min(most, MOST_ENTRIES // len(self.can_be_joint) ** 2)
        if len(left_out.z) < FEWEST / FOLDS:
            most = 1

        def nats(found: Classes) -> float:
            return float(unseen.cells.weights @ unseen.logs(found).logsumexp(dim=1).double())

        best, best_nats = None, -float("inf")
        for found in fit.grown():
            now = nats(found)
            if now > best_nats:
                best, best_nats = found, now
            if now < best_nats or 2 * len(found.logs) > most:
                break
        assert best is not None
        return best_nats, len(best.logs), self._finished(fit, best)

    def _fitted(self, fit: ClassFit, classes: int) -> Classes:
        found = next(one for one in fit.grown() if len(one.logs) >= classes)
        return self._finished(fit, found)

    def _finished(self, fit: ClassFit, found: Classes) -> Classes:
        for _ in range(AT_LAST if len(found.logs) > 1 else 0):
            found = fit.improved(found)
        if not self.balanced:
            return found
        tables = balanced(found.tables, found.logs[None], fit.shares, self.category)
        centers = centered(found.centers, tables, found.logs, fit.mean, self._elsewhere)
        return found._replace(tables=tables, centers=centers)

    # Messages

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path: one cumulative sum; see `Prior.along`."""
        classes, fold = self._parameters_of(x)
        variables = torch.arange(len(self.start), device=x.device).expand(query.shape)
        x, known = x[:, : len(self.start)], given | query
        when = rank.expand(query.shape).masked_fill(~query, torch.iinfo(rank.dtype).max)
        when = when.masked_fill(given, -1)
        logs = self._told(classes, fold, variables, x)  # (rows, vars, classes)
        means, deviations = self._normals(classes, fold, variables)
        if self.joint and len(self.numbers):
            joint = self._joint_along(classes, fold, x, known, when)
            where = self.numbers[self.joint_numbers]
            for part, found in zip((logs, means, deviations), joint, strict=True):
                part[:, where] = found.to(part)
        logs = _before(logs, query, given, when) + classes.logs[fold][:, None]
        return self._message(classes, fold, variables, logs.log_softmax(-1), means, deviations)

    def _joint_along(
        self, classes: Classes, fold: Tensor, x: Tensor, known: Tensor, when: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log densities, means and deviations of joint numbers given those before."""
        where = self.numbers[self.joint_numbers]
        order = when[:, where].argsort(dim=1, stable=True)  # (rows, joint)
        middle = classes.centers[fold][:, :, self.joint_numbers]
        spread = classes.covariances[fold]  # (rows, classes, joint, joint)
        away = (x[:, None, where] - middle).masked_fill(~known[:, None, where], 0)
        count = spread.shape[1]
        rows = order[:, None].expand(-1, count, -1)
        away, middle = away.gather(2, rows), middle.gather(2, rows)
        spread = spread.gather(2, rows[..., None].expand(spread.shape))
        spread = spread.gather(3, rows[:, :, None].expand(spread.shape))
        lower = torch.linalg.cholesky(spread)
        noise = torch.linalg.solve_triangular(lower, away[..., None], upper=False)[..., 0]
        scale = lower.diagonal(dim1=-2, dim2=-1)
        # Without the diagonal: no number has a say in its own mean.
        below = lower.tril(-1)
        means = middle + (below @ noise[..., None])[..., 0]
        deviations = scale.clamp(min=LEAST)
        logs = -0.5 * noise.square() - deviations.log()
        back = rows.argsort(dim=2)
        logs, means, deviations = (part.gather(2, back).mT for part in (logs, means, deviations))
        return logs, means, deviations

    def encode(self, x: Tensor, given: Tensor) -> ClassState:
        """Weighs the classes by the evidence; see `Prior.encode`."""
        classes, fold = self._parameters_of(x)
        variables = torch.arange(len(self.start), device=x.device).expand(given.shape)
        x = x[:, : len(self.start)]
        is_joint = self.joint_at >= 0
        told = self._told(classes, fold, variables, x)
        logs = classes.logs[fold] + told.masked_fill(~(given & ~is_joint)[..., None], 0).sum(dim=1)
        numbers = None
        if is_joint.any():
            numbers = self._posterior(classes, fold, x, given)
            logs = logs + numbers.logs.T
        return ClassState(logs, fold, numbers)

    def _posterior(self, classes: Classes, fold: Tensor, x: Tensor, given: Tensor) -> Posterior:
        """Joint numbers given those of the evidence; rows of a fold that know the same share."""
        where = self.numbers[self.joint_numbers]
        known, own = given[:, where], classes.centers[fold][:, :, self.joint_numbers]
        sets, group = torch.cat([fold[:, None], known.long()], dim=1).unique(
            dim=0, return_inverse=True
        )
        away = (x[:, None, where] - own).masked_fill(~known[:, None], 0)
        gain, left, lower = (
            torch.cat(parts, dim=1)
            for parts in zip(
                *(
                    conditioned(classes.covariances[one], sets[sets[:, 0] == one, 1:].bool())
                    for one in sets[:, 0].unique().tolist()
                ),
                strict=True,
            )
        )
        away = away.movedim(0, 1)  # (classes, rows, joint)
        mean = own.movedim(0, 1) + (away[:, :, None] @ gain[:, group])[:, :, 0]
        return Posterior(
            logs=from_factor(lower[:, group], away),
            mean=mean,
            group=group,
            covariance=left,
            evidence=torch.arange(len(sets), device=x.device),
            columns=left.new_zeros(left.shape[0], len(sets), 0, left.shape[-1]),
            variances=left.diagonal(dim1=-2, dim2=-1),
        )

    def tell(self, state: ClassState, variables: Tensor, values: Tensor) -> ClassState:
        """Weighs the classes by more values; see `Prior.tell`."""
        classes = self._stacked()
        joint = self.joint_at[variables]
        told = self._told(classes, state.fold, variables, values)
        logs = state.logs + told.masked_fill((joint >= 0)[..., None], 0).sum(dim=1)
        numbers = state.numbers
        if numbers is not None:
            before = numbers.logs
            for place, value in zip(joint.unbind(1), values.unbind(1), strict=True):
                numbers = numbers.told(place.clamp(min=0), value, place >= 0)
            logs = logs + (numbers.logs - before).T
        return ClassState(logs, state.fold, numbers)

    def ask(self, state: ClassState, variables: Tensor) -> PriorMessage:
        """Message about variables; see `Prior.ask`."""
        classes = self._stacked()
        means, deviations = self._normals(classes, state.fold, variables)
        if state.numbers is not None:
            joint = self.joint_at[variables]
            rows = torch.arange(len(joint), device=joint.device)[:, None]
            place, is_joint = joint.clamp(min=0), (joint >= 0)[..., None]
            found = state.numbers.mean[:, rows, place].movedim(0, -1)
            variance = state.numbers.variances[:, state.numbers.group[:, None], place]
            wide = variance.movedim(0, -1).clamp(min=LEAST**2).sqrt()
            means, deviations = found.where(is_joint, means), wide.where(is_joint, deviations)
        logs = state.logs.log_softmax(dim=-1)[:, None].expand(*variables.shape, -1)
        return self._message(classes, state.fold, variables, logs, means, deviations)


def _before(logs: Tensor, query: Tensor, given: Tensor, when: Tensor) -> Tensor:
    """Returns the sum of all that is known before each variable of a path.

    Args:
        logs: Log probability of each value with each class. Shape ``(rows, vars, classes)``.
        query: Shape ``(rows, vars)``.
        given: Shape ``(rows, vars)``.
        when: Place of each variable on the path: -1 if given, the greatest if in neither set.
    """
    told = logs.masked_fill(~query[..., None], 0)
    evidence = logs.masked_fill(~given[..., None], 0).sum(dim=1, keepdim=True)
    latest = when.masked_fill(~query, -1).cummax(dim=1).values
    if (latest == when).logical_or(~query).all():  # the path goes along the columns
        return _exclusive(told) + evidence
    order = when.argsort(dim=1, stable=True)[..., None].expand(logs.shape)
    before = _exclusive(told.gather(1, order))
    return torch.empty_like(told).scatter_(1, order, before) + evidence


def _exclusive(steps: Tensor) -> Tensor:
    """Returns the sums of all earlier steps. Shape ``(rows, steps, classes)``."""
    return nn.functional.pad(steps[:, :-1], (0, 0, 1, 0)).cumsum(dim=1)
