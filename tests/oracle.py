"""Exact answers, the slow and obvious way: fractions, loops and every path spelled out.

Nothing here calls the library. Variables are 0..N-1, sets are frozensets, and a law is a dictionary
from its outcomes to fractions.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from math import comb, exp, inf, log, pi
from typing import TypeVar

Set = frozenset[int]
Question = tuple[Set, Set]
Edge = tuple[Set, int]
K = TypeVar("K")


def all_sets(n: int) -> list[Set]:
    return [frozenset(s) for c in range(n + 1) for s in combinations(range(n), c)]


def cardinality_law(n: int, sizes: dict[int, Fraction]) -> dict[Set, Fraction]:
    """Sets of one size are alike; `sizes` are the probabilities of the sizes."""
    return {s: sizes.get(len(s), Fraction(0)) / comb(n, len(s)) for s in all_sets(n)}


def uniform_sizes(low: int, high: int) -> dict[int, Fraction]:
    return {c: Fraction(1, high - low + 1) for c in range(low, high + 1)}


def bernoulli_sizes(n: int, p: Fraction) -> dict[int, Fraction]:
    return {c: comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)}


def marginals(law: dict[Set, Fraction]) -> dict[Question, Fraction]:
    return {(frozenset(), s): mass for s, mass in law.items()}


def conditionals(n: int, law: dict[Set, Fraction]) -> dict[Question, Fraction]:
    return {(s, frozenset(range(n)) - s): mass for s, mass in law.items()}


def partials(n: int) -> dict[Question, Fraction]:
    """A size uniform on 0..N, of which a number uniform on 0..size is asked, given some are."""
    table: dict[Question, Fraction] = {}
    for s, mass in cardinality_law(n, uniform_sizes(0, n)).items():
        for query in all_sets(n):
            if query and query <= s:
                share = Fraction(1, (len(s) + 1) * comb(len(s), len(query)))
                table[s - query, query] = mass * share
    return normalised(table)


def mixture(
    parts: Iterable[tuple[Fraction, dict[Question, Fraction]]],
) -> dict[Question, Fraction]:
    mixed: dict[Question, Fraction] = defaultdict(Fraction)
    for share, law in parts:
        for question, mass in law.items():
            mixed[question] += share * mass
    return dict(mixed)


def restrict(law: dict[Question, Fraction], available: Set) -> dict[Question, Fraction]:
    """Questions about the available variables, given that something is left to ask."""
    kept: dict[Question, Fraction] = defaultdict(Fraction)
    for (given, query), mass in law.items():
        if query & available:
            kept[given & available, query & available] += mass
    return normalised(kept)


def edge_law(
    questions: dict[Question, Fraction],
    order: list[int] | None,
    *,
    weighting: str,
    reweight: bool,
) -> dict[Edge, Fraction]:
    """The law over edges (e, i): walk every path of every question. `order=None` is w-RND."""
    edges: dict[Edge, Fraction] = defaultdict(Fraction)
    for (given, query), mass in questions.items():
        if not query or not mass:
            continue
        paths = [sorted(query, key=order.index)] if order else list(permutations(query))
        share = mass / len(paths) / (len(query) if weighting == "path" else 1)
        for path in paths:
            for t, i in enumerate(path):
                e = given | set(path[:t])
                edges[e, i] += share * (1 + len(e) if reweight else 1)
    return normalised(edges)


def node_law(edges: dict[Edge, Fraction]) -> dict[Set, Fraction]:
    nodes: dict[Set, Fraction] = defaultdict(Fraction)
    for (e, _), mass in edges.items():
        nodes[e] += mass
    return dict(nodes)


def edge_weights(edges: dict[Edge, Fraction]) -> dict[Edge, Fraction]:
    """The share q(i | e) of the mass of node e that runs along the edge (e, i)."""
    nodes = node_law(edges)
    return {(e, i): mass / nodes[e] for (e, i), mass in edges.items() if nodes[e]}


def normalised(law: dict[K, Fraction]) -> dict[K, Fraction]:
    total = sum(law.values())
    return {key: mass / total for key, mass in law.items()}


Values = tuple[int, ...]
Joint = dict[Values, float]


def marginal(joint: Joint, x: Values, members: Set) -> float:
    """p(x_members): the sum over all completions."""
    return sum(p for values, p in joint.items() if all(values[i] == x[i] for i in members))


def conditional(joint: Joint, x: Values, query: Set, given: Set) -> float:
    """p(x_query | x_given) by Bayes' rule."""
    return marginal(joint, x, query | given) / marginal(joint, x, given)


Rule = Callable[[Values, Set, int], float]
"""From values, what is known and a variable to p(x_i | x_known), whether or not these agree."""


def path_log_prob(rule: Rule, x: Values, path: Sequence[int], given: Set = frozenset()) -> float:
    """log p(x_path | x_given), one factor after another."""
    total, known = 0.0, set(given)
    for i in path:
        total += log(rule(x, frozenset(known), i))
        known.add(i)
    return total


def summed_out(rule: Rule, x: Values, path: Sequence[int], j: int, levels: int) -> float:
    """log sum_v p(x_path with x_j = v) - log p(x_path without j)."""
    worlds = [(*x[:j], v, *x[j + 1 :]) for v in range(levels)]
    total = sum(exp(path_log_prob(rule, world, path)) for world in worlds)
    return log(total) - path_log_prob(rule, x, [i for i in path if i != j])


def ks_distance(pits: Sequence[float]) -> float:
    """The largest difference between the share of PITs up to a number, and that number."""
    n = len(pits)
    below = [abs(sum(q < p for q in pits) / n - p) for p in pits]
    up_to = [abs(sum(q <= p for q in pits) / n - p) for p in pits]
    return max(below + up_to)


def binomial_p_value(inside: int, n: int, level: float) -> float:
    """Twice the lesser tail: so many of n, or fewer, and so many, or more; at most 1."""
    chances = [math.comb(n, k) * level**k * (1 - level) ** (n - k) for k in range(n + 1)]
    return min(1.0, 2 * min(sum(chances[: inside + 1]), sum(chances[inside:])))


def calibration_error(confidence: Sequence[float], hit: Sequence[bool], bins: int) -> float:
    """The expected calibration error, bin by bin."""
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = [
            i
            for i, c in enumerate(confidence)
            if low <= c < high or (c == 1 and number == bins - 1)
        ]
        if inside:
            said = sum(confidence[i] for i in inside) / len(inside)
            right = sum(hit[i] for i in inside) / len(inside)
            total += len(inside) / len(hit) * abs(said - right)
    return total


def logistic_levels(
    logits: Sequence[float], means: Sequence[float], log_scales: Sequence[float], levels: int
) -> list[float]:
    """The probability of each cell of a mixture of logistics, in 60 digits."""
    with localcontext() as digits:
        digits.prec = 60
        weights = [Decimal(logit).exp() for logit in logits]

        def below(edge: Decimal) -> Decimal:
            parts = zip(weights, means, log_scales, strict=True)
            cells = (w / (1 + ((Decimal(m) - edge) / Decimal(s).exp()).exp()) for w, m, s in parts)
            return sum(cells, Decimal(0)) / sum(weights)

        edges = [below(Decimal(v) - Decimal("0.5")) for v in range(1, levels)]
        ends = [Decimal(0), *edges, Decimal(1)]
        return [float(high - low) for low, high in pairwise(ends)]


def normal_given(
    center: Sequence[float],
    covariance: Sequence[Sequence[float]],
    known: dict[int, float],
    target: int,
) -> tuple[float, float]:
    """Mean and variance of one normal number given others: one after the other becomes known."""
    mean, left = list(center), [list(row) for row in covariance]
    n = len(mean)
    for place, value in known.items():
        gain = [left[i][place] / left[place][place] for i in range(n)]
        surprise = value - mean[place]
        mean = [mean[i] + gain[i] * surprise for i in range(n)]
        left = [[left[i][j] - gain[i] * left[place][j] for j in range(n)] for i in range(n)]
    return mean[target], left[target][target]


def normal_density(
    center: Sequence[float], covariance: Sequence[Sequence[float]], known: dict[int, float]
) -> float:
    """Of some numbers of a joint normal: a product of factors, one number after another."""
    density, told = 1.0, dict[int, float]()
    for place, value in known.items():
        mean, variance = normal_given(center, covariance, told, place)
        density *= exp(-((value - mean) ** 2) / (2 * variance)) / (2 * pi * variance) ** 0.5
        told[place] = value
    return density


def bells_given(
    normals: Iterable[tuple[float, Sequence[float], Sequence[Sequence[float]]]],
    known: dict[int, float],
    target: int,
) -> list[tuple[float, float, float]]:
    """Share, mean and variance of one number under each of several joint normals with weights."""
    parts = [
        (weight * normal_density(center, covariance, known), center, covariance)
        for weight, center, covariance in normals
    ]
    total = sum(weight for weight, _, _ in parts)
    return [(w / total, *normal_given(c, s, known, target)) for w, c, s in parts]


def tree_beliefs(
    parent: Sequence[int],
    root: Sequence[float],
    branch: Sequence[Sequence[Sequence[float]]],
    likelihoods: Sequence[Sequence[float]],
) -> list[list[float]]:
    """p(z_i | evidence) of every variable of a tree of hidden states, over all assignments.

    Args:
        parent: Parent of each variable; -1 for the root.
        root: p(z) of the root.
        branch: p(z of a variable | z of its parent), by variable; not read for the root.
        likelihoods: Likelihood of the evidence about each variable given its state; 1 of nothing.
    """
    states, count = len(root), len(parent)
    found = [[0.0] * states for _ in parent]
    for assignment in product(range(states), repeat=count):
        joint = 1.0
        for variable, state in enumerate(assignment):
            above = parent[variable]
            joint *= root[state] if above < 0 else branch[variable][assignment[above]][state]
            joint *= likelihoods[variable][state]
        for variable, state in enumerate(assignment):
            found[variable][state] += joint
    return [[part / sum(one) for part in one] for one in found]


def best_spanning_tree(information: Sequence[Sequence[float]]) -> float:
    """Greatest sum of information over the edges of a tree that spans all variables."""
    count = len(information)
    pairs = list(combinations(range(count), 2))
    best = -inf
    for edges in combinations(pairs, count - 1):
        group = list(range(count))
        for one, other in edges:
            group = [group[one] if g == group[other] else g for g in group]
        if len(set(group)) == 1:
            best = max(best, sum(information[i][j] for i, j in edges))
    return best
