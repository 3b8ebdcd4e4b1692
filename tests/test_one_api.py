"""The three estimators take the same training parameters, check them alike, and know old names."""

import inspect
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import anyorder as ao
from anyorder.errors import ConfigError, renamed
from anyorder.images.data import bundled_digits
from anyorder.images.inpainting import half_hole
from anyorder.robots.kitchen import toy_demonstrations
from anyorder.text.data import embedded_text
from anyorder.training.progress import shows

FIVE = ["random_state", "minutes", "settings", "progress", "device"]
SETTINGS = ao.TrainingSettings(steps=2, batch=4, warmup=1, seed=3)
NETWORK = {"layers": 1, "width": 16, "heads": 2}
ESTIMATORS = {
    "table": (ao.TableModel, {}),
    "text": (ao.TextModel, {"length": 12}),
    "image": (ao.ImageModel, {}),
}
RUNS = Path(__file__).parent / "saved_runs" / "0.1.0"


def data_of(name):
    if name == "table":
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.choice(["x", "y"], 90)})
        return frame.assign(c=frame.a + rng.normal(size=90))
    return embedded_text() if name == "text" else bundled_digits()


def made(name, **options):
    cls, own = ESTIMATORS[name]
    return cls(**NETWORK, **own, **options)


def logs(name, model):
    """The log-likelihoods of something, from whichever model."""
    if name == "table":
        return model.log_prob(data_of(name)[:5])
    return np.asarray(model.log_prob(["a text"] if name == "text" else data_of(name).test[:5]))


@pytest.fixture(scope="module")
def fitted():
    return {name: made(name, settings=SETTINGS).fit(data_of(name)) for name in ESTIMATORS}


def parameters(function):
    return inspect.signature(function).parameters


def test_the_five_parameters_end_every_signature_with_the_same_defaults():
    found = [list(parameters(cls).values())[-5:] for cls, _ in ESTIMATORS.values()]
    for five in found:
        assert [one.name for one in five] == FIVE
        assert {one.kind for one in five} == {inspect.Parameter.KEYWORD_ONLY}
        assert [one.default for one in five] == [0, None, None, None, None]
        assert [one.annotation for one in five] == [one.annotation for one in found[0]]
    for policy in (ao.ConditionalPolicy, ao.CloningPolicy):
        assert list(parameters(policy))[-4:] == FIVE[:4], "policies act on the CPU"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_answers_and_fits_have_one_way_to_say_it(name):
    cls, _ = ESTIMATORS[name]
    methods = dict(inspect.getmembers(cls, inspect.isfunction))
    public = {key: one for key, one in methods.items() if not key.startswith("_")}
    assert not [key for key, one in public.items() if "seed" in parameters(one)]
    assert "random_state" in parameters(cls.sample)
    assert parameters(cls.check)["random_state"].default == 0
    assert "progress" not in parameters(cls.fit)
    assert parameters(cls.load)["device"].default is None


WRONG = {
    "random_state": ({"random_state": 1.5}, "`random_state` must be a whole number, from 0 to"),
    "negative": ({"random_state": -1}, "`random_state` must be a whole number, from 0 to"),
    "minutes": ({"minutes": 0}, "`minutes` must be a number, above 0 and finite; got 0."),
    "settings": ({"settings": {"steps": 2}}, "`settings` must be TrainingSettings or None; got d"),
    "both": (
        {"minutes": 1, "settings": SETTINGS},
        "`minutes` and `settings` exclude each other: set settings.minutes.",
    ),
    "two seeds": (
        {"random_state": 5, "settings": SETTINGS},
        "`random_state` and `settings` exclude each other: set settings.seed.",
    ),
    "progress": ({"progress": "yes"}, "`progress` must be True or False; got 'yes'."),
    "device": (
        {"device": "gpu"},
        '`device` must be None, "cpu", "cuda", "mps" or a torch.device; got \'gpu\'.',
    ),
    "no such device": (
        {"device": torch.device("cuda", 99)},
        '`device` must be a device of this machine; it has no "cuda:99". Use "cpu", or None',
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_wrong_values_are_refused_by_fit_in_the_same_words(name, wrong):
    options, words = WRONG[wrong]
    model = made(name)
    for key, value in options.items():
        setattr(model, key, value)  # TextModel and ImageModel would refuse them when made
    with pytest.raises(ConfigError) as refusal:
        model.fit(data_of(name))
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize("wrong", WRONG)
def test_they_are_refused_at_once_but_where_scikit_learn_forbids_it(wrong):
    options, words = WRONG[wrong]
    for name in ("text", "image"):
        with pytest.raises(ConfigError) as refusal:
            made(name, **options)
        assert str(refusal.value).startswith(words)
    assert made("table", **options).get_params().items() >= options.items()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_device_that_is_not_there_is_refused_by_fit_and_load(name, fitted, tmp_path):
    fitted[name].save(tmp_path)
    loads = (type(fitted[name]).load, ao.load)
    for load in (*loads, lambda _, device: made(name, device=device).fit(data_of(name))):
        with pytest.raises(ConfigError, match='it has no "cuda"'):
            load(tmp_path, device="cuda")


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")], ids=repr)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_device_is_that_of_the_model(name, device, fitted, tmp_path):
    model = made(name, settings=SETTINGS, device=device).fit(data_of(name))
    assert model.model_.device == torch.device("cpu")
    np.testing.assert_array_equal(logs(name, model), logs(name, fitted[name]))
    model.save(tmp_path)
    for load in (type(model).load, ao.load):
        loaded = load(tmp_path, device=device)
        assert loaded.device == device
        assert loaded.model_.device == torch.device("cpu")
        np.testing.assert_array_equal(logs(name, loaded), logs(name, model))
        assert load(tmp_path).device is None, "where a model was trained is not kept"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_seed_is_random_state_or_that_of_the_settings(name):
    budget = replace(SETTINGS, seed=0)
    found = [
        logs(name, made(name, **options).fit(data_of(name)))
        for options in (
            {"settings": replace(budget, seed=7)},
            {"settings": replace(budget, seed=7), "random_state": 7},
            {"settings": replace(budget, seed=7), "random_state": None},
            {"settings": budget},
        )
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert not np.allclose(found[0], found[3])


@pytest.mark.parametrize("name", ["text", "image"])
def test_minutes_and_random_state_are_part_of_the_settings(name):
    default = made(name).training_settings()
    assert (default.minutes, default.seed) == (10, 0)
    told = made(name, minutes=3, random_state=4).training_settings()
    assert told == replace(default, minutes=3, seed=4)
    assert made(name, settings=SETTINGS).training_settings() is SETTINGS


def test_the_budget_of_a_table():
    table = ao.TableModel
    assert (table()._budget().minutes, table(minutes=2)._budget().minutes) == (7, 2)
    steps = table(max_steps=5)._budget()
    assert (steps.steps, steps.minutes) == (5, None)
    assert table(max_steps=5, minutes=2)._budget().minutes == 2
    assert table(max_steps=5, settings=SETTINGS)._budget() is SETTINGS


@pytest.mark.parametrize(
    ("rows", "columns", "minutes"), [(344, 7, 0.24), (50_000, 10, 2), (100_000, 100, 7)]
)
def test_minutes_go_with_the_size_of_a_table(rows, columns, minutes):
    assert ao.TableModel()._minutes(rows, columns) == minutes
    assert ao.TableModel(minutes=3)._minutes(rows, columns) == 3
    assert ao.TableModel(max_steps=3)._minutes(rows, columns) is None


def test_progress_is_for_terminals_and_notebooks(capsys, monkeypatch):
    assert [shows(told) for told in (True, False, None)] == [True, False, False]
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert shows(None)
    made("table", settings=replace(SETTINGS, evaluate_every=1)).fit(data_of("table"))
    assert "held-out loss best" in capsys.readouterr().err


def test_settings_of_a_table_are_all_there_is(tmp_path):
    frame = data_of("table")
    settings = replace(SETTINGS, evaluate_every=1, patience=1, batch=200)
    model = made("table", settings=settings, batch=7, max_steps=99).fit(frame, folder=tmp_path)
    assert model.fit_.step == 2
    assert model.fit_.held_out is not None
    few = made("table", settings=settings).fit(frame[:20])  # too few to hold any out
    assert (few.fit_.step, few.fit_.held_out) == (2, None)
    model.save(tmp_path / "saved")
    loaded = ao.load(tmp_path / "saved")
    assert loaded.get_params() == {**model.get_params(), "context": [], "missing_values": []}
    assert clone(loaded).settings == settings


def test_progress_is_shown_if_the_model_says_so(capsys):
    for name in ESTIMATORS:
        for shown in (False, True):
            made(name, settings=SETTINGS, progress=shown).fit(data_of(name))
            assert bool(capsys.readouterr().err) == shown


OLD_ANSWERS = {
    "infill": lambda model, **seed: model.infill("a te_t", **seed),
    "sample": lambda model, **seed: model.sample(2, **seed),
    "evaluate": lambda model, **seed: model.evaluate("a text to read", rows=1, **seed),
    "check": lambda model, **seed: model.check(embedded_text(), rows=4, **seed).to_json(),
}
OLD_PICTURES = {
    "inpaint": lambda model, **seed: model.inpaint(
        bundled_digits().test[0], half_hole((8, 8), "top"), **seed
    ),
    "sample": lambda model, **seed: model.sample(2, **seed),
    "evaluate": lambda model, **seed: model.evaluate(bundled_digits(), rows=2, **seed),
    "check": lambda model, **seed: model.check(bundled_digits(), rows=4, **seed).to_json(),
}
OLD = {f"text.{method}": ask for method, ask in OLD_ANSWERS.items()}
OLD |= {f"image.{method}": ask for method, ask in OLD_PICTURES.items()}


@pytest.mark.parametrize("question", OLD)
def test_seed_is_the_old_name_of_random_state(question, fitted):
    name, ask = question.split(".")[0], OLD[question]
    with pytest.warns(FutureWarning, match="`seed` is now `random_state`; the old name goes"):
        old = ask(fitted[name], seed=5)
    assert repr(old) == repr(ask(fitted[name], random_state=5))
    with pytest.raises(ConfigError, match="`seed` is the old name of `random_state`"):
        ask(fitted[name], seed=5, random_state=5)


def test_guide_is_the_old_name_of_prior():
    with pytest.warns(FutureWarning, match="`guide` is now `prior`"):
        model = ao.TableModel(guide=False)
    assert model.prior is False
    with pytest.warns(FutureWarning, match="`guide` is now `prior`") as caught:
        model.set_params(guide=True)
    assert Path(caught[0].filename) == Path(__file__), "the warning points at the caller"
    assert model.prior is True
    assert "guide" not in model.get_params()
    assert clone(ao.TableModel(prior=False)).prior is False


@pytest.mark.parametrize("name", ["text", "image"])
def test_progress_was_an_argument_of_fit(name, capsys):
    model = made(name, settings=SETTINGS)
    with pytest.warns(FutureWarning, match=rf"`progress` is now `{type(model).__name__}\(progre"):
        model.fit(data_of(name), progress=True)
    assert model.progress is True
    assert capsys.readouterr().err


def test_policies_have_the_same_names():
    demonstrations = toy_demonstrations(8)
    size = {"hidden": 16, "blocks": 1}
    for policy in (ao.CloningPolicy, ao.ConditionalPolicy):
        with pytest.raises(ConfigError, match="`minutes` and `settings` exclude each other"):
            policy(minutes=1, settings=SETTINGS)
        assert policy(random_state=4).training_settings().seed == 4
        with pytest.warns(FutureWarning, match="`progress` is now"):
            fitted = policy(**size, settings=SETTINGS).fit(demonstrations, progress=False)
        assert fitted.progress is False


@pytest.mark.parametrize("name", ["table", "ensemble", "text", "image"])
def test_models_of_the_first_version_load_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ao.load(RUNS / name)
    assert model.random_state == (model.settings.seed if model.settings else 0)
    if isinstance(model, ao.TableModel):
        assert model.prior is True


def test_a_renamed_argument_leaves_the_signature_as_it_is():
    @renamed(seed="random_state")
    def answer(*, random_state=None):
        return random_state

    assert list(parameters(answer)) == ["random_state"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        answer(sed=1)
