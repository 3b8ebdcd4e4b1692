r"""Latent classes over all columns: the general location mixture.

Every row has a class z of share pi_z that is never seen. Given z, levels of categories are
independent with probabilities theta_z, and numbers are normal: jointly, or independent where they
are many. A number with repeated values (atoms) has a category of its own, which value or
*elsewhere*, and a normal for what is elsewhere. For any evidence e

    p(z | x_e) = pi_z prod_c theta_zc(x_c) N_z(numbers of e) / sum of the same,
    p(x_i | x_e) = sum_z p(z | x_e) p(x_i | z, numbers of e),

so log class weights along a path are an exclusive cumulative sum, and what is missing is not in the
product. Answers agree with each other: they are conditionals of one joint distribution.

Classes are fitted by expectation maximisation. Every class is split in two, all are fitted anew,
and so on as long as left-out rows become more probable. At last tables and centers are moved, as
little as possible, so that without evidence a level has the smoothed frequency of its column and a
number its mean, exactly.

A row must not see itself: in training it gets the message of classes that were fitted without the
fifth of the rows (*fold*) that it is in. Its fold follows from its values, so nobody has to hand it
on. Rows with equal values are dealt to different folds, and take one of these at random: to leave
out all of them would make what is common rare.

References:
    Olkin and Tate (1961): the general location model.
    Dempster, Laird and Rubin (1977), section 4.3: mixtures.
    Chernozhukov et al. (2018): cross-fitting.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PriorMessage
from anyorder.priors.class_fit import AT_LAST, Cells, Classes, ClassFit, Layout
from anyorder.priors.contract import Prior
from anyorder.priors.moments import conditioned, from_factor, in_rows
from anyorder.priors.normals import LEAST, Posterior
from anyorder.priors.scales import Units
from anyorder.variables import Schema

FOLDS = 5
"""Number of folds; the first is left out to choose the number of classes, too."""

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

NO_CHANCE = -1e4
"""Log probability of a level that a variable does not have."""


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


class LatentClasses(Prior):
    """Mixture of classes over all columns; see the module.

    Args:
        schema: The variables; context is not read.
        classes: Number of classes; `fit` chooses it.
        joint: True for numbers that are joint given the class; `fit` chooses it.
        densities: True for messages about numbers, too; numbers are evidence either way.
        balanced: True if classes are moved to the frequencies and means of what rows have. False
            for values that are missing depending on others: there maximum likelihood knows better.

    Example:
        >>> from anyorder.variables import Variable
        >>> prior = LatentClasses(Schema(tuple(Variable.categorical(n, [0, 1]) for n in "ab")))
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]).repeat(500, 1)
        >>> prior.fit(x, torch.ones_like(x, dtype=torch.bool))
        >>> state = prior.eval().encode(x[:1], torch.tensor([[True, False]]))
        >>> prior.ask(state, torch.tensor([[1]])).levels.exp().round(decimals=2)
        tensor([[[1., 0.]]])
    """

    is_cross_fitted = True

    start: Tensor
    level: Tensor
    inside: Tensor
    numbers: Tensor
    has_levels: Tensor
    has_atoms: Tensor
    is_number: Tensor
    category: Tensor
    values: Tensor
    place: Tensor
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
        super().__init__(schema)
        self.balanced, self.densities = balanced, densities
        asked = [variable for variable in schema if not variable.context]
        sizes = [v.num_levels or (len(v.atoms) + 1 if v.atoms else 0) for v in asked]
        self.atoms = [torch.tensor(v.atoms) for v in asked]
        self.sizes, self.most_levels = sizes, max([1, *sizes])
        numbers = [i for i, v in enumerate(asked) if v.kind == "continuous"]
        self.can_be_joint = [n for n, i in enumerate(numbers) if not asked[i].atoms]
        start = torch.tensor([0, *sizes]).cumsum(dim=0)
        has_levels = [i for i, size in enumerate(sizes) if size]
        levels = torch.arange(self.most_levels)
        inside = levels < torch.tensor(sizes)[:, None]
        # An atom's levels begin with "elsewhere".
        table = (start[:-1, None] + levels).where(inside, int(start[-1]))
        own = {
            "start": start[:-1],
            "level": table,  # (vars, most levels), the last level where there is none
            "inside": inside,
            "numbers": torch.tensor(numbers, dtype=torch.long),
            "has_levels": torch.tensor(has_levels, dtype=torch.long),
            "has_atoms": torch.tensor([bool(v.atoms) for v in asked]),
            "is_number": torch.tensor([v.kind == "continuous" for v in asked]),
            "category": torch.arange(len(has_levels)).repeat_interleave(
                torch.tensor([size for size in sizes if size], dtype=torch.long)
            ),
        }
        none = float("nan")
        values = [[none, *v.atoms] if v.atoms else [none] * v.num_levels for v in asked]
        own["values"] = torch.tensor([v for part in values for v in part], dtype=torch.float64)
        place = torch.zeros(len(asked), dtype=torch.long)
        place[numbers] = torch.arange(len(numbers))
        own["place"] = place
        for name, part in own.items():
            self.register_buffer(name, part, persistent=False)
        self._keep(classes, joint, self._nothing(classes, joint))
        self._repeated: tuple[Tensor, Tensor] | None = None
        self._folds: Classes | None = None  # stacked

    def _nothing(self, classes: int, joint: bool) -> Classes:
        """Classes before any row is read: equal levels, standard normals."""
        numbers, size = len(self.numbers), len(self.can_be_joint) if joint else 0
        even = -torch.tensor([float(s) for s in self.sizes if s]).log()[self.category]
        tables = nn.functional.pad(even, (0, 1))[:, None].repeat(1, classes)
        zeros, ones = torch.zeros(classes, numbers), torch.ones(classes, numbers)
        return Classes(
            torch.zeros(classes).log_softmax(dim=0),
            tables,
            zeros,
            ones,
            torch.eye(size).repeat(classes, 1, 1),
        )

    def _keep(self, classes: int, joint: bool, found: Classes) -> None:
        """Takes over classes; those of a fit may be of another number than before."""
        self.classes, self.joint = classes, joint
        self.components = classes if len(self.numbers) and self.densities else 0
        places = torch.tensor(self.can_be_joint if joint else [], dtype=torch.long)
        places = places.to(self.start.device)
        joint_at = torch.full_like(self.start, -1)
        joint_at[self.numbers[places]] = torch.arange(len(places), device=places.device)
        self.register_buffer("joint_numbers", places, persistent=False)
        self.register_buffer("joint_at", joint_at, persistent=False)
        for name, part in zip(Classes._fields, found, strict=True):
            self.register_buffer(name, part.float())

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
        self._keep(classes, joint, fitted(fold >= 0))
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
        elsewhere = self.start[self.numbers].masked_fill(~self.has_atoms[self.numbers], -1)
        return fit.centered(fit.balanced(found), elsewhere)

    def _cells(self, x: Tensor, have: Tensor, weights: Tensor) -> Cells:
        variables = torch.arange(len(self.start), device=x.device)
        x = x[:, : len(variables)]
        codes = self._codes(variables.expand(x.shape), x)
        places = (self.start + codes).masked_fill(~have, len(self.category))
        counts = (codes == 0) | ~self.has_atoms
        there = (have & counts)[:, self.numbers]
        z = x[:, self.numbers].double().masked_fill(~there, 0)
        return Cells(places[:, self.has_levels], z, there, weights)

    def _codes(self, variables: Tensor, values: Tensor) -> Tensor:
        """Code of each value: of a level, or of an atom, after 0 for elsewhere.

        Args:
            variables: Shape ``(rows, tokens)``.
            values: Shape ``(rows, tokens)``.
        """
        most = torch.tensor(self.sizes, device=values.device).clamp(min=1) - 1
        codes = values.nan_to_num().clamp(min=0).long().minimum(most[variables])
        codes = codes.masked_fill(self.is_number[variables], 0)
        for variable in variables[self.has_atoms[variables]].unique().tolist():
            mine = variables == variable
            own, atoms = values[mine].float(), self.atoms[variable].to(values.device)
            place = torch.searchsorted(atoms, own).clamp(max=len(atoms) - 1)
            codes[mine] = torch.where(atoms[place] == own, place + 1, 0)
        return codes

    # Folds

    def _dealt(self, x: Tensor) -> Tensor:
        """Fold of each row of the fit; rows with the same values go to different ones."""
        keys = row_keys(x)
        distinct, which, counts = keys.unique(return_inverse=True, return_counts=True)
        order = which.argsort(stable=True)
        first = counts.cumsum(dim=0) - counts
        turn = torch.empty_like(which)
        turn[order] = torch.arange(len(x), device=x.device) - first[which[order]]
        self._repeated = distinct[counts > 1], counts[counts > 1]
        return (keys + turn) % FOLDS

    def _fold(self, x: Tensor) -> Tensor:
        """Fold of each row in training; of several with the same values, that of any."""
        keys = row_keys(x)
        turn = torch.zeros_like(keys)
        assert self._repeated is not None
        repeated, counts = (part.to(x.device) for part in self._repeated)
        if len(repeated):
            place = torch.searchsorted(repeated, keys).clamp(max=len(repeated) - 1)
            copies = counts[place].where(repeated[place] == keys, 1)
            if self.training:  # evaluations are the same every time
                turn = (torch.rand(len(x), device=x.device) * copies).long()
        return (keys + turn) % FOLDS

    def _parameters_of(self, x: Tensor) -> tuple[Classes, Tensor]:
        """Stacked parameters, and which of them each row has: one fit, or those of the folds."""
        fold = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return self._stacked(), self._fold(x) if self._takes_folds else fold

    @property
    def _takes_folds(self) -> bool:
        return (self.training or self.leaves_out) and self._folds is not None

    def _stacked(self) -> Classes:
        """Parameters with an axis of folds, or of one fit.

        Doubles where the device has them, and nothing is trained: answers are to agree.
        """
        device = self.logs.device
        kind = torch.float32 if self.training or device.type == "mps" else torch.float64
        own = (getattr(self, name)[None] for name in Classes._fields)
        found = self._folds if self._takes_folds and self._folds is not None else own
        return Classes(*(part.to(device, kind) for part in found))

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

    def _told(self, classes: Classes, fold: Tensor, variables: Tensor, values: Tensor) -> Tensor:
        """Log probability of values with each class; joint numbers as if they were not.

        Shape ``(rows, tokens, classes)``.
        """
        codes = self._codes(variables, values)
        levels = self.level[variables, codes]
        found = classes.tables[fold[:, None], levels]
        if not len(self.numbers):
            return found
        means, deviations = self._normals(classes, fold, variables)
        away = (values.to(means)[..., None] - means) / deviations
        logs = -0.5 * away.square() - deviations.log()
        counts = self.is_number[variables] & (codes == 0)
        return found + logs.where(counts[..., None], 0)

    def _normals(self, classes: Classes, fold: Tensor, variables: Tensor) -> tuple[Tensor, Tensor]:
        """Means and deviations of numbers with each class. Shapes ``(rows, tokens, classes)``."""
        if not len(self.numbers):
            nothing = classes.logs.new_zeros(*variables.shape, 0)
            return nothing, nothing
        place = self.place[variables]
        mean, variance = (
            part.mT[fold[:, None], place] for part in (classes.centers, classes.variances)
        )
        return mean, variance.sqrt()

    def _message(
        self,
        classes: Classes,
        fold: Tensor,
        variables: Tensor,
        logs: Tensor,
        means: Tensor,
        deviations: Tensor,
    ) -> PriorMessage:
        """Message from log weights, means and deviations ``(rows, tokens, classes)``."""
        weights = logs.exp()
        levels = self._levels(classes, fold, variables, weights)
        if not means.shape[-1] or not self.densities:
            zero, none = levels.new_zeros(variables.shape), means[..., :0].to(levels)
            return PriorMessage(zero, zero, none, none, none, levels)
        if self.has_atoms.any():  # the density is that of what is elsewhere
            place = self.start[variables].masked_fill(~self.has_atoms[variables], -1)
            beside = classes.tables[fold[:, None], place]
            logs = (logs + beside).log_softmax(dim=-1)
            weights = logs.exp()
        mean = (weights * means).sum(dim=-1)
        spread = deviations.square() + (means - mean[..., None]).square()
        log_scale = 0.5 * (weights * spread).sum(dim=-1).log()
        gone = ~self.is_number[variables]
        location, log_scale = (part.masked_fill(gone, 0) for part in (mean, log_scale))
        parts = (location, log_scale, logs, means, deviations.log(), levels)
        return PriorMessage(*(part.float() for part in parts))

    def _levels(self, classes: Classes, fold: Tensor, variables: Tensor, weights: Tensor) -> Tensor:
        """Log probability of each level. Shape ``(rows, tokens, most levels)``."""
        found = weights.new_zeros(*variables.shape, self.most_levels)
        tables = classes.tables.exp()
        every = torch.arange(len(fold), device=fold.device)
        for one in fold.unique().tolist():
            rows = every if len(tables) == 1 else (fold == one).nonzero()[:, 0]
            own = variables[rows]
            if (own == own[:1]).all():
                table = tables[one][self.level[own[0]]]  # (tokens, levels, classes)
                found[rows] = (weights[rows].movedim(0, 1) @ table.mT).movedim(0, 1)
                continue
            for variable in own.unique().tolist():
                row, token = (own == variable).nonzero(as_tuple=True)
                share = weights[rows[row], token]
                found[rows[row], token] = share @ tables[one][self.level[variable]].T
        return found.log().masked_fill(~self.inside[variables], NO_CHANCE).float()


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


MIX = 0x9E3779B97F4A7C15 - 2**64
"""An odd number without pattern, by which keys are multiplied."""


def row_keys(x: Tensor) -> Tensor:
    """A number of 31 bits that depends on all values of a row. Shape ``(rows,)``."""
    key = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for column in (x.float() + 0.0).contiguous().view(torch.int32).long().unbind(dim=1):
        key = (key ^ column) * MIX
        key = key ^ (key >> 29)
    return (key >> 32) & (2**31 - 1)
