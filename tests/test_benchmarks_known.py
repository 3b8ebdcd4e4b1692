"""Known truth: questions, divergences and their errors, on a network small enough to enumerate."""

import gzip
import json
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import expon, multivariate_normal, norm

from anyorder import ConfigError
from benchmarks import known_networks, known_truth, rival_environments
from benchmarks.known_truth import (
    FREQUENCIES,
    LEARNT,
    Known,
    Measured,
    Sizes,
    asked_sizes,
    divergence,
    known_location,
    measured,
    read_known,
)
from benchmarks.location_model import Bimodal, Exponential, LocationModel, copula, location
from benchmarks.rival_environments import Rival, RivalError
from benchmarks.rivals.questions import (
    Answers,
    Question,
    read_answers,
    read_questions,
    read_rows,
    sample_questions,
    sizes_of,
    write_answers,
    write_questions,
    write_rows,
)
from benchmarks.rivals.task import Column
from tests import fake_network

SIZES = Sizes(train_rows=400, test_rows=50, questions=12)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    (folder / "network.bif").write_text("")
    (folder / "settings.json").write_text(json.dumps(vars(SIZES)))
    fake_network.main(folder)
    return read_known(folder)


def test_questions_are_the_same_for_the_same_seed():
    first, again, other = (sample_questions(9, 40, number=30, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_questions_have_all_sizes_and_every_target_equally_often():
    questions = sample_questions(12, 40, number=24, seed=0)
    assert sizes_of(12) == [("0", 0), ("1", 1), ("3", 3), ("10", 10), ("all", 11)]
    for name, size in sizes_of(12):
        asked = [one for one in questions if one.size == name]
        targets = [one.target for one in asked]
        assert sorted(targets) == sorted([*range(12)] * (2 if size else 1))
        for one in asked:
            assert len(set(one.given)) == size
            assert list(one.given) == sorted(one.given)
            assert one.target not in one.given
            assert 0 <= one.row < 40


def test_a_size_that_is_all_others_is_asked_once():
    assert [name for name, _ in sizes_of(11)] == ["0", "1", "3", "all"]
    assert sizes_of(2) == [("0", 0), ("all", 1)]


def test_files_give_back_what_was_written(tmp_path):
    questions = sample_questions(5, 7, number=4, seed=0)
    write_questions(tmp_path / "questions", questions)
    assert read_questions(tmp_path / "questions") == questions
    answers = Answers([np.array([-0.1, -np.inf]), np.array([1 / 3])], np.array([-2.5]), 1.5)
    write_answers(tmp_path / "answers", answers)
    found = read_answers(tmp_path / "answers")
    np.testing.assert_equal(found.logs, answers.logs)
    np.testing.assert_equal(found.joint, answers.joint)
    assert found.seconds == 1.5
    rows = np.array([[1.0, 1 / 3]])
    write_rows(tmp_path / "rows", rows, ["a", "b"])
    np.testing.assert_equal(read_rows(tmp_path / "rows"), rows)


def test_exact_answers_have_no_divergence(known):
    found = measured(known, [known.truth])
    np.testing.assert_allclose(found.divergence, 0, atol=1e-15)
    assert found.joint_rows().value == known.truth.joint.mean()
    assert found.zeros == 0
    assert (measured(known, [known.others[LEARNT]]).divergence > 0).all()


def test_divergences_are_sums_over_levels(known):
    scores, _ = divergence(known, known.others[FREQUENCIES])
    for question, score in zip(known.questions, scores, strict=True):
        row = known.test[question.row]
        truth = fake_network.conditional({i: row[i] for i in question.given}, question.target)
        column = known.train[:, question.target]
        shares = [(column == level).sum() + 0.5 for level in range(len(truth))]
        shares = np.array(shares) / sum(shares)
        parts = [p * np.log(p / q) for p, q in zip(truth, shares, strict=True) if p > 0]
        assert score == pytest.approx(sum(parts), abs=1e-14)


def test_a_wrong_zero_is_floored_and_counted(known):
    wrong = [np.full_like(logs, -np.inf) for logs in known.truth.logs]
    answers = Answers([wrong[0], *known.truth.logs[1:]], known.truth.joint)
    scores, zeros = divergence(known, answers)
    weights = known.nodes[0].weights
    entropy = -weights @ np.log(weights)
    assert scores[0] == pytest.approx(-np.log(1e-12) - entropy)
    assert zeros == 1


def test_standard_errors_are_over_questions_and_over_seeds():
    divergences = np.array([[1.0, 3.0, 5.0, 100.0], [2.0, 4.0, 9.0, 100.0]])
    found = Measured(divergences, np.zeros((2, 3)), np.ones(2), 0)
    asked = np.array([True, True, True, False])
    questions, seeds = found.over_questions(asked), found.over_seeds(asked)
    assert questions.value == seeds.value == 4
    # The questions have 1.5, 3.5 and 7 on average, the seeds 3 and 5.
    assert questions.se == pytest.approx(np.std([1.5, 3.5, 7], ddof=1) / 3**0.5)
    assert seeds.se == pytest.approx(1.0)


def test_the_frame_and_the_evidence_have_labels(known):
    frame = known.frame(known.test)
    assert list(frame["remedy"].cat.categories) == ["tea", "pill", "none"]
    row = known.test[3]
    assert frame["cold"][3] == ("yes" if row[2] else "no")
    evidence = known.evidence(Question("1", 3, (1, 2), 0))
    assert evidence == {"sneeze": frame["sneeze"][3], "cold": frame["cold"][3]}


class Oracle:
    """Answers as a fitted model does, by enumeration."""

    def conditional(self, column, *, given):
        names, levels = fake_network.NAMES, fake_network.LEVELS
        codes = {names.index(n): levels[names.index(n)].index(v) for n, v in given.items()}
        place = names.index(column)
        found = fake_network.conditional(codes, place)
        return SimpleNamespace(pdf=lambda values: found[[levels[place].index(v) for v in values]])

    def log_prob(self, frame):
        codes = [frame[name].cat.codes for name in fake_network.NAMES]
        return np.log(fake_network.JOINT[tuple(codes)])


def test_a_model_that_knows_the_truth_has_no_divergence(known):
    answers = known_networks.answered(known, Oracle(), 2.0)
    np.testing.assert_allclose(divergence(known, answers)[0], 0, atol=1e-14)
    np.testing.assert_allclose(answers.joint, known.truth.joint)
    assert answers.seconds == 2


def test_rows_of_a_record_and_pairs(known):
    found = {LEARNT: measured(known, [known.others[LEARNT]])}
    found["exact"] = measured(known, [known.truth, known.truth])
    rows, pairs = known_networks.results("tiny", known, found)
    metrics = {(row.model, row.metric): row for row in rows}
    assert metrics["exact", "kl_all"].value == pytest.approx(0, abs=1e-15)
    assert metrics["exact", "kl_1"].n == 12
    assert metrics["exact", "kl_0"].n == 4
    assert metrics["exact", "kl_1/seeds"].n == 2
    assert (LEARNT, "kl_1/seeds") not in metrics
    assert metrics["truth", "joint_nats"].value == known.truth.joint.mean()
    assert metrics[LEARNT, "fit_seconds"].value == 1.5
    less = {(pair.a, pair.b, pair.metric): pair for pair in pairs}
    assert less["exact", "truth", "joint_nats"].difference == 0
    value = metrics[LEARNT, "kl_1"].value
    assert less["exact", LEARNT, "kl_1"].difference == pytest.approx(-value)


@pytest.mark.parametrize("marginal", [Exponential(), Bimodal()], ids=["exponential", "bimodal"])
def test_marginals_are_inverted_and_integrate_to_one(marginal):
    z = np.linspace(-5, 5, 20_001)
    x = marginal.value(z)
    np.testing.assert_allclose(marginal.score(x), z, atol=1e-7)
    density = np.exp(marginal.log_density(x))
    shares = (density[1:] + density[:-1]) / 2 * np.diff(x)
    np.testing.assert_allclose(shares.cumsum(), norm.cdf(z[1:]) - norm.cdf(-5), atol=1e-4)


def test_columns_of_a_copula_have_their_marginals():
    model, x = copula(), np.array([0.1, 1.0, 4.0])
    row = model.sample(1, np.random.default_rng(0))[0]
    np.testing.assert_allclose(model.log_conditional(x, row, (), 0), expon.logpdf(x))
    both = (norm.pdf(x, -2, 0.5) + norm.pdf(x, 2, 1)) / 2
    np.testing.assert_allclose(model.log_conditional(x, row, (), 1), np.log(both))
    np.testing.assert_allclose(model.log_conditional(x, row, (), 2), norm.logpdf(x))


def slow_joint(model, row, columns):
    """The density of some columns, summed over the classes."""
    first, total = len(model.tables), 0.0
    numbers = [column - first for column in columns if column >= first]
    values = [row[first + number] for number in numbers]
    for place, weight in enumerate(model.weights):
        part = weight
        for column in columns:
            if column < first:
                part *= model.tables[column][place, int(row[column])]
        if numbers:
            covariance = model.covariances[place][np.ix_(numbers, numbers)]
            part *= multivariate_normal(model.means[place][numbers], covariance).pdf(values)
        total += part
    return total


def test_conditionals_of_a_location_model_are_ratios_of_joints():
    model = location()
    rows = model.sample(4, np.random.default_rng(1))
    joints = [np.log(slow_joint(model, row, range(12))) for row in rows]
    np.testing.assert_allclose(model.log_prob(rows), joints)
    for given, target in [((), 3), ((0, 7), 2), ((1, 6, 9), 8), ((), 10), ((0, 2, 4), 11)]:
        for row in rows:
            found = model.log_conditional(row[[target]], row, given, target)[0]
            ratio = slow_joint(model, row, (*given, target)) / slow_joint(model, row, given)
            assert found == pytest.approx(np.log(ratio))


@pytest.mark.parametrize("model", [copula(), location()], ids=["copula", "location"])
def test_nodes_integrate(model):
    row = model.sample(1, np.random.default_rng(2))[0]
    for given, target in [((), 0), ((0, 2), 4), ((1, 3, 8), 6), ((0, 2, 5, 7, 9), 10)]:
        nodes = model.nodes(row, given, target)
        assert nodes.weights.sum() == pytest.approx(1)
        is_category, x = model.columns[target].is_category, nodes.points
        if not is_category:
            x = np.linspace(x.min(), x.max(), 20_001)
        density = np.exp(model.log_conditional(x, row, given, target))
        if is_category:
            np.testing.assert_allclose(density, nodes.weights)
            continue
        # Conditionals of an exponential are steep at 0, where even steps are too wide.
        assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-4)
        mean = np.trapezoid(x * density, x)
        assert nodes.weights @ nodes.points == pytest.approx(mean, abs=1e-4)


def test_samples_are_of_the_model():
    model = location()
    rows = model.sample(20_000, np.random.default_rng(0))
    share = (rows[:, 2] == 1).mean()
    truth = np.exp(model.log_conditional(np.array([1.0]), rows[0], (), 2))[0]
    assert share == pytest.approx(truth, abs=4 * (truth * (1 - truth) / 20_000) ** 0.5)
    nodes = model.nodes(rows[0], (), 8)
    spread = rows[:, 8].std() / 20_000**0.5
    assert rows[:, 8].mean() == pytest.approx(nodes.weights @ nodes.points, abs=4 * spread)


def test_the_divergence_of_two_normals_is_the_closed_form():
    model = LocationModel(np.ones(1), [], np.zeros((1, 1)), np.ones((1, 1, 1)), [None])
    row = np.zeros(1)
    nodes = model.nodes(row, (), 0)
    truth = Answers([model.log_conditional(nodes.points, row, (), 0)], np.zeros(1))
    asked, column = [Question("0", 0, (), 0)], [Column("x", "number")]
    known = Known(column, [[]], row[None], row[None], asked, [nodes], truth)
    answers = Answers([norm.logpdf(nodes.points, 0.5, 2.0)], np.zeros(1))
    expected = np.log(2) + (1 + 0.5**2) / (2 * 2**2) - 0.5
    assert divergence(known, answers)[0] == pytest.approx([expected], abs=1e-7)


def test_known_location_is_reproducible_and_scores_marginals():
    sizes = Sizes(train_rows=60, test_rows=20, questions=6)
    known, again = (known_location(location(), sizes) for _ in range(2))
    np.testing.assert_equal(known.train, again.train)
    assert known.questions == again.questions
    np.testing.assert_allclose(measured(known, [known.truth]).divergence, 0, atol=1e-12)
    scores = measured(known, [known.others[FREQUENCIES]])
    numbers = np.array([not known.columns[one.target].is_category for one in known.questions])
    sizes_asked = asked_sizes(known)
    np.testing.assert_allclose(scores.divergence[0, sizes_asked["0"] & numbers], 0, atol=1e-12)
    assert (scores.divergence[0, sizes_asked["all"]] > 0).all()


def test_the_budget_is_that_of_fit_in_processor_time(monkeypatch):
    asked = []

    class Model:
        def __init__(self, **options):
            asked.append(options)

        def fit(self, _frame):
            return self

    monkeypatch.setattr(known_networks, "TableModel", Model)
    monkeypatch.setattr(known_networks, "answered", lambda *_: None)
    known = known_location(location(), Sizes(train_rows=20, test_rows=4, questions=2))
    assert list(known_networks.ours(known, {"members": 1}, 90.0, [3, 4])) == [None, None]
    common = {"members": 1, "minutes": 1.5, "clock": "processor"}
    assert asked == [{**common, "random_state": seed} for seed in (3, 4)]


@pytest.fixture
def fake_rival(monkeypatch, tmp_path):
    """The worker by enumeration, and a wheel with a file that it does not read."""
    archive = tmp_path / "pgmpy-1.1.2-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as files:
        for name, text in (("asia", b""), ("sachs", b"fail")):
            files.writestr(f"pgmpy/utils/example_models/{name}.bif.gz", gzip.compress(text))
    monkeypatch.setattr(known_truth, "NETWORKS", Rival("tests.fake_network", None))
    small = {"layers": 1, "width": 8, "heads": 2}
    monkeypatch.setattr(known_networks, "VARIANTS", {"TableModel": small})
    return tmp_path


def test_a_run_prints_tables_and_writes_a_record(fake_rival, capsys):
    options = {"environments": fake_rival, "seconds": 0.3, "seeds": [0, 1], "questions": 3}
    options |= {"train_rows": 60, "test_rows": 10}
    place = fake_rival / "record.json"
    known_networks.measure(truths=["asia"], record=place, **options)
    printed = capsys.readouterr().out
    assert "asia: 4 columns, 60 training rows" in printed
    assert "over 2 seeds" in printed
    kept = json.loads(place.read_text())
    assert {row["model"] for row in kept["rows"]} == {"truth", FREQUENCIES, LEARNT, "TableModel"}
    assert "--truths asia --variants TableModel --seconds 0.3 --seeds 0 1" in kept["command"]
    assert "commit" in kept
    known_networks.measure(truths=["copula"], json=True, **{**options, "seeds": [0]})
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["model"] for row in rows} == {"truth", FREQUENCIES, "TableModel"}


def test_errors_name_the_option(fake_rival):
    with pytest.raises(ConfigError, match="`truths` must be one of"):
        known_networks.measure(truths=["child"])
    with pytest.raises(ConfigError, match="`seconds` must be above 0"):
        known_networks.measure(seconds=0)
    with pytest.raises(ConfigError, match='"sachs" cannot be answered: Nothing works here'):
        known_networks.measure(truths=["sachs"], environments=fake_rival)


def test_a_wheel_is_downloaded_once(monkeypatch, tmp_path):
    commands = []

    def run(command):
        commands.append(command)
        (tmp_path / "pgmpy-1.1.2-py3-none-any.whl").touch()

    monkeypatch.setattr(rival_environments, "_run", run)
    for _ in range(2):
        found = rival_environments.wheel("pgmpy==1.1.2", sys.executable, tmp_path)
        assert found.name == "pgmpy-1.1.2-py3-none-any.whl"
    assert len(commands) == 1
    assert commands[0][-1] == "pgmpy==1.1.2"


def test_a_package_that_cannot_be_installed_is_a_user_error(monkeypatch, tmp_path):
    def fail(*_):
        raise RivalError("no such package")

    monkeypatch.setattr(known_truth, "environment", fail)
    with pytest.raises(ConfigError, match="no such package"):
        known_networks.measure(truths=["asia"], environments=tmp_path)
