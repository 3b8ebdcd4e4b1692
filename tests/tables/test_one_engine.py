"""Python, the command line and HTTP are one query engine: same keys, same numbers, few encodes."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from anyorder.cli.app import main
from anyorder.errors import QueryError
from anyorder.heads.distributions import mean_rule
from anyorder.inference.univariates import Edges, Mixing, Numbers
from anyorder.serve.app import create_app
from anyorder.tables import engine
from anyorder.tables.model import TableModel
from tests.serve.conftest import client, people, serving

DRAWS = 1024
"""Samples for intervals and sets that `TableModel` and the command line take."""

QUESTIONS = [
    ("income", {}),
    ("job", {}),
    ("born", {}),
    ("member", {}),
    ("hours", {}),
    ("income", {"age": 41, "job": "nurse"}),
    ("hours", {"age": 41, "income": 30_000.0}),
    ("job", {"income": 30_000.0, "member": True}),
    ("born", {"age": 30}),
    ("member", {"hours": 40.0, "job": "clerk"}),
    ("age", {"born": "1985-03-01", "job": "clerk"}),
    ("income", {"age": (30, 45)}),
    ("job", {"income": (20_000.0, None)}),
    ("born", {"hours": (None, 39.0)}),
    ("member", {"born": ("1980-01-01", "1990-12-31")}),
    ("hours", {"job": ["nurse", "clerk"]}),
    ("income", {"job": ["nurse", "clerk"], "age": (25, 60)}),
    ("age", {"job": None, "income": 25_000.0}),
    ("job", {"age": None}),
    ("born", {"member": False, "hours": None, "job": ["clerk", "nurse"]}),
]


@pytest.fixture(scope="module")
def model():
    options = {"layers": 1, "width": 16, "heads": 2, "dropout": 0.0, "learning_rate": 5e-3}
    return TableModel(**options, max_steps=60).fit(people())


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "people"
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def http(model):
    with serving(create_app(model)) as (address, _), client(address) as asking:
        yield asking


def as_json(value):
    """Evidence as HTTP takes it."""
    return {"low": value[0], "high": value[1]} if isinstance(value, tuple) else value


def as_text(name, value):
    """Evidence as the command line takes it."""
    if isinstance(value, tuple):
        low, high = ("" if end is None else end for end in value)
        return f"{name}={low}..{high}"
    listed = "|".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{name}={listed}"


def assert_alike(found, expected, path=""):
    assert type(found) is type(expected) or {type(found), type(expected)} == {int, float}, path
    if isinstance(expected, dict):
        assert list(found) == list(expected), path
        for key, value in expected.items():
            assert_alike(found[key], value, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for place, pair in enumerate(zip(found, expected, strict=True)):
            assert_alike(*pair, f"{path}[{place}]")
    elif isinstance(expected, float) and not isinstance(expected, bool):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), path
    else:
        assert found == expected, path


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_three_doors_give_one_answer(model, run, http, capsys, number):
    column, given = QUESTIONS[number]
    own = model.conditional(column, given=given)
    expected = json.loads(json.dumps(own.to_dict()))
    evidence = {name: as_json(value) for name, value in given.items()}
    request = {"given": evidence, "columns": [column], "draws": DRAWS}
    answer = http.post("/v1/conditionals", json=request).json()
    told = [as_text(name, value) for name, value in given.items() if value is not None]
    main(
        [
            "query",
            str(run),
            "--of",
            column,
            "--json",
            *(["--given", ",".join(told)] if told else []),
        ]
    )
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(answer) == list(printed) == ["columns", "effective_sample_size", "warnings"]
    for found in (answer, printed):
        assert_alike(found["columns"], {column: expected})
        size = None if math.isinf(own.effective_sample_size) else own.effective_sample_size
        assert_alike(found["effective_sample_size"], size)


def test_an_answer_has_what_its_methods_say(model):
    hours = model.conditional("hours", given={"age": 41})
    found = hours.to_dict()
    assert (found["column"], found["type"]) == ("hours", "number")
    assert found["mean"] == pytest.approx(hours.mean(), rel=1e-9)
    assert found["median"] == hours.median() == found["quantiles"]["0.5"]
    assert found["interval_90"] == list(hours.interval(0.9))
    shares = [float(share) for share in found["quantiles"]]
    assert list(found["quantiles"].values()) == hours.quantile(shares).tolist()
    place = found["repeated"]["values"].index(40.0)
    assert found["repeated"]["probabilities"][place] == pytest.approx(hours.pdf(40.0)[0], rel=1e-6)
    member = model.conditional("member", given={"age": 41})
    found, own = member.to_dict(), member.probabilities()
    assert found["mode"] == member.mode() == found["levels"][0]
    assert dict(zip(found["levels"], found["probabilities"], strict=True)) == own.to_dict()
    assert found["entropy"] == pytest.approx(-(own * np.log(own)).sum())


def test_a_warning_is_part_of_the_answer(run, http, capsys):
    main(["query", str(run), "--of", "job", "--given", "age=300", "--json"])
    shown = capsys.readouterr()
    printed = json.loads(shown.out.splitlines()[-1])
    answer = http.post("/v1/conditionals", json={"given": {"age": 300}, "columns": ["job"]}).json()
    assert printed["warnings"] == answer["warnings"]
    assert "the model extrapolates" in printed["warnings"][0]


def test_rare_levels_are_summed_up():
    frame = pd.DataFrame({"word": [f"w{i % 250}" for i in range(500)], "x": np.arange(500) / 7})
    model = TableModel(layers=1, width=8, heads=2, max_steps=2).fit(frame)
    found = model.conditional("word").to_dict()
    assert len(found["levels"]) == 200
    assert sum(found["probabilities"]) + found["rest"] == pytest.approx(1, abs=1e-6)
    assert found["rest"] > 0


def test_several_columns_are_one_question(model):
    found = model.conditionals(["income", "job"], given={"age": (30, 40)})
    assert list(found) == ["income", "job"]
    assert found["income"].evidence is found["job"].evidence
    own = model.conditional("income", given={"age": (30, 40)})
    assert found["income"].median() == own.median()
    assert set(model.conditionals(given={"age": 41})) == {*people().columns} - {"age"}
    with pytest.raises(QueryError, match="both queried and given"):
        model.conditionals(["income", "age"], given={"age": 41})


@pytest.fixture
def encodes(model, monkeypatch):
    """The rows of each encoding of evidence, as the network sees them."""
    seen, network = [], model.model_.network
    encode, forward = network.encode, network.forward

    def counted(x, *rest, **options):
        seen.append(len(x))
        return encode(x, *rest, **options)

    def fused(x, *rest, **options):
        seen.append(len(x))
        return forward(x, *rest, **options)

    monkeypatch.setattr(network, "encode", counted)
    monkeypatch.setattr(network, "forward", fused)
    return seen


def test_exact_evidence_is_encoded_once(model, encodes):
    income = model.conditional("income", given={"age": 41, "job": "nurse"})
    income.mean(), income.quantile(0.1), income.to_dict()
    assert encodes == [1]


def test_an_information_gain_takes_two_passes(model, encodes):
    gains = model.information_gain("income", given={"age": 41})
    assert len(gains) == 4
    assert len(encodes) <= 3


def test_the_same_evidence_is_encoded_once(model, encodes, monkeypatch):
    monkeypatch.setattr(engine, "ROWS_AT_ONCE", 4)
    frame = people(11)[["age", "income"]]
    rows = pd.concat([frame] * 5, ignore_index=True)
    found = model.predict_proba(rows, target="job")
    assert encodes == [4, 4, 3]
    assert found.iloc[:11].to_numpy() == pytest.approx(found.iloc[11:22].to_numpy(), abs=0)
    encodes.clear()
    model.predict(rows, target="hours")
    assert encodes == [4, 4, 3]
    encodes.clear()
    model.impute(rows, how="mode")
    assert encodes == [4, 4, 3]


def test_a_batch_answers_as_each_question_alone(model):
    x, missing = model.table_.encode(people(6).assign(job=None))
    known = ~missing
    known[::2, 0] = False
    evidence = [engine.Evidence(x[i : i + 1], known[i], {}) for i in range(6)]
    questions = [
        engine.Question(one.sampled(model.model_, 1, None), variables, one)
        for one, variables in zip(
            [*evidence, evidence[0]], [[3], [3], [], [3], [3], [3], [3, 0]], strict=True
        )
    ]
    together = engine.answer(model.model_, questions)
    assert [len(part) for part in together] == [1, 1, 0, 1, 1, 1, 2]
    for question, found in zip(questions, together, strict=True):
        (alone,) = engine.answer(model.model_, [question])
        for one, other in zip(found, alone, strict=True):
            assert one.own.shape == other.own.shape
            assert torch.allclose(one.own, other.own, atol=1e-5)
            assert (one.prior is None) == (other.prior is None)


SHARES = torch.tensor([1e-4, 0.01, 0.1, 0.5, 0.9, 0.99, 1 - 1e-4], dtype=torch.float64)


def groups(model, number, seed=0):
    """Distributions of the numbers of the table, given some cells of some rows."""
    x, missing = model.table_.encode(people(number, seed))
    known = torch.rand(missing.shape, generator=torch.Generator().manual_seed(seed)) < 0.4
    evidence = [engine.Evidence(x[i : i + 1], known[i], {}) for i in range(number)]
    questions = [
        engine.Question(one.sampled(model.model_, 1, None), range(6), one) for one in evidence
    ]
    features = [part for found in engine.answer(model.model_, questions) for part in found]
    alone = [torch.ones(1)] * len(features)
    edges = Edges.of(features, list(range(6)) * number, alone)
    return [group for _, group in edges.groups(model.model_) if isinstance(group, Numbers)]


def test_quantiles_are_those_of_the_distributions(model):
    for group in groups(model, 8):
        codes = group.quantiles(SHARES)
        exact = group.part.icdf(SHARES[:, None].expand(-1, group.mixing.count)).double()
        # The weights of a mixture are float32: they sum to one but for 1e-7, which the engine
        # corrects. That moves a normal score by 1e-7 over its density, most in the tails.
        assert (codes - exact)[1:-1].abs().max() < 1e-5
        density = group.part.log_prob(exact.float()).exp()
        assert ((codes - exact).abs() * density).max() < 3e-7
        reached = group.part.cdf(codes).double()
        below = group.part.cdf(codes - 1e-5).double()
        assert (reached > SHARES[:, None] - 1e-6).all()
        assert (below < SHARES[:, None] + 1e-6).all()


def test_entropies_are_those_of_the_distributions(model):
    for group in groups(model, 8):
        nodes = ((torch.arange(512) + 0.5).double() / 512)[:, None].expand(-1, group.mixing.count)
        smooth = -group.smooth.log_prob(group.smooth.icdf(nodes)).mean(dim=0)
        atoms = torch.special.entr(group.masses).sum(dim=1) + torch.special.entr(group.share)
        found = group.entropy()
        assert torch.allclose(found, atoms + group.share * smooth, atol=1e-3)
        wide = smooth > -3  # of narrower ones, float32 tells too few codes apart
        assert wide.any()
        # Densities of narrow components are steep between codes that float32 tells apart.
        assert torch.allclose(found[wide], group.part.entropy()[wide].double(), atol=3e-5)


def test_quantiles_of_mixtures_invert_their_cdf(model):
    (group,) = (group for group in groups(model, 40) if not group.masses.shape[1])
    count = group.mixing.count
    owner = torch.arange(count) * 3 // count  # three mixtures of many edges
    weight = 1 / owner.bincount()[owner].double()
    mixed = Numbers(group.part, Mixing(owner, weight, 3), group.device)
    codes = mixed.quantiles(SHARES)
    assert mixed._below(codes) == pytest.approx(SHARES[:, None].expand(-1, 3), abs=1e-6)


def test_a_mean_is_that_of_its_quantiles(model):
    income = model.conditional("income", given={"age": 41})
    shares, weights = mean_rule()
    codes = income._numbers.part.icdf(shares[:, None])[:, 0].double().numpy()
    exact = weights.numpy() @ income.column.numbers(codes)
    assert income.mean() == pytest.approx(exact, rel=2e-6)  # quantiles are of float32
