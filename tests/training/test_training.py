"""Training: the same bits after any interruption, the same loss in any number of processes."""

import atexit
import copy
import json
import math
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anyorder.errors import CheckpointError, ConfigError
from anyorder.lattice.masks import UniformCardinality
from anyorder.saving.checkpoint import load_model, load_saved, save_model
from anyorder.training.batches import Rows, micro_batches, scoped_seed
from anyorder.training.distributed import Team
from anyorder.training.learner import Learner, denormals_flushed, is_flushing
from anyorder.training.loop import Interrupts, Stopped, fit
from anyorder.training.losses import ArdmLoss, MacLoss, Objective
from anyorder.training.progress import Metrics, ProgressLine
from anyorder.training.settings import (
    TrainingSettings,
    autocast,
    is_first_process,
    learning_rate,
    low_precision,
)
from tests.saving.test_checkpoint import (
    NUM_LEVELS,
    NUM_VARIABLES,
    assert_same_weights,
    flip,
    toy_model,
)

UNTIMED = {"seconds": 0, "setup": 0, "computed": 0, "best_seconds": 0}
"""What differs between two equal trainings."""

SETTINGS = TrainingSettings(
    batch=8,
    steps=12,
    learning_rate=0.02,
    warmup=3,
    ema=0.9,
    log_every=1,
    evaluate_every=4,
    checkpoint_every=3,
)


class ToyData:
    """Rows whose variables are equal, mostly; `at` is a step and what happens there."""

    def __init__(self, at=None, happening=lambda: None, gaps=False):
        self.at, self.happening, self.gaps = at, happening, gaps
        self.steps = []

    def batch(self, step, size, *, generator):
        self.steps.append(step)
        if step == self.at:
            self.happening()
        level = torch.randint(NUM_LEVELS, (size, 1), generator=generator)
        noise = torch.randint(NUM_LEVELS, (size, NUM_VARIABLES), generator=generator)
        keep = torch.rand(size, NUM_VARIABLES, generator=generator) < 0.9
        have = torch.rand(size, NUM_VARIABLES, generator=generator) < 0.7
        have[:, 0] = True
        return torch.where(keep, level, noise), have if self.gaps else None


def interrupt():
    raise KeyboardInterrupt


def held_out(model):
    """Bits of the first variable given the rest, on fixed rows."""
    x, _ = ToyData().batch(0, 64, generator=torch.Generator().manual_seed(1))
    observed = torch.ones_like(x, dtype=torch.bool)
    observed[:, 0] = False
    targets = torch.zeros(64, 1, dtype=torch.long)
    logs = model.predict(x, observed, targets).log_prob(x[:, :1])
    return -logs.mean().item() / math.log(2)


def train(folder=None, data=None, settings=SETTINGS, valid=held_out, objective=None, **options):
    model = toy_model(dropout=0.1)
    objective = objective or ArdmLoss()
    done = fit(
        model,
        data or ToyData(),
        objective,
        settings=settings,
        valid=valid,
        folder=folder,
        **options,
    )
    return model, done


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return *train(folder), folder


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_time(entries):
    timed = ("seconds", "rows_per_second")
    return [{k: v for k, v in entry.items() if k not in timed} for entry in entries]


# Resuming.


@pytest.mark.parametrize("step", [0, 1, 5, 9, 11])
def test_a_stopped_run_resumes_to_the_same_bits(tmp_path, undisturbed, step):
    model, done, folder = undisturbed
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, ToyData(at=step, happening=interrupt))
    data = ToyData()
    resumed, again = train(tmp_path, data)
    assert data.steps == list(range(step, 12))
    assert_same_weights(model, resumed)
    assert replace(again, **UNTIMED) == replace(done, **UNTIMED)
    assert without_time(lines(tmp_path)) == without_time(lines(folder))


def test_a_run_stopped_in_an_evaluation_does_it_again(tmp_path, undisturbed):
    calls = []

    def stopped(model):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return held_out(model)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, valid=stopped)
    resumed, _ = train(tmp_path)
    assert_same_weights(undisturbed[0], resumed)
    assert without_time(lines(tmp_path)) == without_time(lines(undisturbed[2]))


def test_kill_nine_in_the_middle_of_training(tmp_path, undisturbed):
    """The process is killed in step 7; the last checkpoint is that of step 6."""
    command = [sys.executable, "-m", "tests.training.test_training", "kill", str(tmp_path)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], env=one_thread())
    assert killed.returncode == -signal.SIGKILL
    data = ToyData()
    resumed, _ = train(tmp_path, data)
    assert data.steps == list(range(6, 12))
    assert_same_weights(undisturbed[0], resumed)
    assert without_time(lines(tmp_path)) == without_time(lines(undisturbed[2]))


def test_a_damaged_checkpoint_is_passed_over(tmp_path, undisturbed, caplog):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, ToyData(at=8, happening=interrupt))
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-00000006",
        "step-00000008",
    ]
    flip(tmp_path / "step-00000008" / "training.safetensors")
    data = ToyData()
    resumed, _ = train(tmp_path, data)
    assert data.steps == list(range(6, 12))
    assert "training.safetensors is damaged" in caplog.text
    assert_same_weights(undisturbed[0], resumed)


def test_a_finished_run_is_loaded(undisturbed):
    model, done, folder = undisturbed
    data = ToyData()
    loaded, again = train(folder, data)
    assert data.steps == []
    assert again == done
    assert_same_weights(model, loaded)
    assert_same_weights(model, load_model(folder))


def test_a_constant_schedule_can_be_extended(tmp_path):
    constant = replace(SETTINGS, schedule="constant", evaluate_every=None)
    train(tmp_path, settings=replace(constant, steps=5))
    longer, done = train(tmp_path, settings=constant)
    assert done.step == 12
    assert_same_weights(longer, train(settings=constant)[0])


def test_another_run_is_refused_by_the_field_that_differs(undisturbed):
    folder = undisturbed[2]
    with pytest.raises(
        CheckpointError, match=r"`settings.learning_rate` is 0.02 there and 0.1 now"
    ):
        train(folder, settings=replace(SETTINGS, learning_rate=0.1))
    with pytest.raises(CheckpointError, match=r"`settings.steps` is 12 there and 20 now"):
        train(folder, settings=replace(SETTINGS, steps=20))
    with pytest.raises(CheckpointError, match=r"`objective.type`"):
        train(folder, objective=MacLoss(UniformCardinality(NUM_VARIABLES)))
    with pytest.raises(CheckpointError, match=r"`model.network.width` is 8 there and 4 now"):
        fit(toy_model(width=4), ToyData(), ArdmLoss(), settings=SETTINGS, folder=folder)


def test_settings_of_the_machine_may_differ(undisturbed):
    train(undisturbed[2], settings=replace(SETTINGS, accumulate=2, checkpoint_every=None))


# Several processes.


def one_thread():
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


PLAIN = replace(SETTINGS, ema=0.9, accumulate=2, draws=1)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Two processes under torchrun, with DDP and with FSDP, and one stopped and resumed."""
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", "-m", "tests.training.test_training", "together", str(folder)]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, env=one_thread(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes_train_like_one(tmp_path, together, how):
    model = toy_model()
    done = fit(model, ToyData(), ArdmLoss(), settings=PLAIN, valid=held_out, folder=tmp_path)
    for alone, two in zip(lines(tmp_path), lines(together / how), strict=True):
        assert alone["step"] == two["step"]
        for name in {"loss", "held_out", "gradient"} & alone.keys():
            assert two[name] == pytest.approx(alone[name], abs=1e-5), name
    loaded = load_model(together / how)
    for one, other in zip(model.parameters(), loaded.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-4)
    returned = load_saved(together / f"{how}-returned")
    assert_same_weights(loaded, returned.model)
    assert returned.notes["step"] == done.step


def test_no_thread_outlives_the_group(together):
    """One that lets go of a tensor while Python ends would abort the process."""
    for rank in (0, 1):
        assert len((together / f"threads-{rank}").read_text().split()) == 1


def test_a_sharded_run_can_be_gone_on_with_alone(together):
    """The folder of a checkpoint is the same however many processes wrote it."""
    settings = replace(PLAIN, accumulate=1)
    assert newest_step(together / "stopped") == 6
    done = fit(
        toy_model(),
        ToyData(),
        ArdmLoss(),
        settings=settings,
        valid=held_out,
        folder=together / "stopped",
    )
    assert done.step == 12
    for entry, two in zip(lines(together / "stopped"), lines(together / "fsdp"), strict=True):
        if "loss" in entry:
            assert entry["loss"] == pytest.approx(two["loss"], abs=1e-5)


def test_sharding_needs_several_processes():
    with pytest.raises(ConfigError, match="start with torchrun"):
        train(settings=replace(SETTINGS, sharding="fsdp"))


def test_rows_are_shared_out_without_rest():
    team = Team(torch.device("cpu"))
    team.size = 3
    shares = []
    for team.rank in range(3):
        shares += range(8)[team.rows(8)]
    assert shares == list(range(8))


# What a step computes.


class Fixed(Objective):
    """A loss without randomness, to compare ways of computing one gradient."""

    def draw(self, model, batch, *, available=None, generator=None):
        del model, available, generator
        return (torch.arange(batch),)

    def loss(self, model, x, drawn):
        del drawn
        return ArdmLoss().loss(
            model, x, (torch.zeros_like(x, dtype=torch.bool), torch.ones(x.shape))
        )


def test_accumulated_gradients_are_those_of_one_batch():
    settings = replace(SETTINGS, ema=None)
    one = toy_model()
    fit(one, ToyData(), ArdmLoss(), settings=settings)
    for accumulate in (2, 4, 8):
        many = toy_model()
        fit(many, ToyData(), ArdmLoss(), settings=replace(settings, accumulate=accumulate))
        for a, b in zip(one.parameters(), many.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5)


def test_a_step_can_draw_several_times():
    settings = replace(SETTINGS, accumulate=4, draws=2)
    drawn = []

    class Recorded(Fixed):
        def draw(self, model, batch, *, available=None, generator=None):
            del model, generator
            assert available.shape == (batch, NUM_VARIABLES)
            drawn.append(batch)
            return (torch.full((batch,), len(drawn)),)

    team, data = Team(torch.device("cpu")), ToyData(gaps=True)
    batches = list(
        micro_batches(
            toy_model(), data, Recorded(), settings=settings, team=team, step=0, share=0.0
        )
    )
    assert drawn == [4, 4]
    assert [part.tolist() for _, (part,) in batches] == [[1, 1], [1, 1], [2, 2], [2, 2]]
    x, _ = ToyData().batch(0, 8, generator=torch.Generator())
    assert torch.cat([rows for rows, _ in batches]).shape == x.shape


def test_training_learns_from_rows_with_gaps():
    settings = TrainingSettings(batch=64, steps=150, learning_rate=0.02, warmup=10)
    model = toy_model()
    before = held_out(model)
    fit(model, ToyData(gaps=True), ArdmLoss(), settings=settings)
    assert held_out(model) < before - 0.3
    assert not model.training


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    train()
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_is_a_function_of_the_step():
    def draw(step):
        with scoped_seed(0, step, "dropout", device=torch.device("cpu")):
            return torch.rand(4)

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


def test_the_average_is_what_is_returned():
    """Against the definition, step by step, with the shorter decay of the start."""
    seen = []
    settings = replace(SETTINGS, ema=0.5, evaluate_every=1)
    plain = replace(settings, ema=None)
    fit(
        toy_model(),
        ToyData(),
        ArdmLoss(),
        settings=plain,
        valid=lambda model: seen.append(model.network.mix.weight.clone()) or 0.0,
    )
    mean = toy_model().network.mix.weight.detach()
    for step, weight in enumerate(seen, start=1):
        decay = min(0.5, (1 + step) / (10 + step))
        mean = decay * mean + (1 - decay) * weight
    averaged = toy_model()
    fit(averaged, ToyData(), ArdmLoss(), settings=settings, valid=held_out)
    assert torch.allclose(averaged.network.mix.weight, mean, atol=1e-6)


def test_weight_decay_spares_biases_norms_and_embeddings():
    learner = Learner(toy_model(), ArdmLoss(), SETTINGS, Team(torch.device("cpu")))
    decays = learner.optimizer.decays
    assert decays.keys() == learner.parameters.keys()
    decayed = {"network.mix.weight", "conditionals.weight"}
    assert decays == {name: 0.01 if name in decayed else 0.0 for name in decays}


def test_steps_are_those_of_torchs_adamw():
    settings = replace(SETTINGS, weight_decay=0.1, clip=None)
    learner = Learner(toy_model(), ArdmLoss(), settings, Team(torch.device("cpu")))
    theirs = copy.deepcopy(learner.parameters)
    free = {name for name, decay in learner.optimizer.decays.items() if not decay}
    groups = [
        {"params": [w for n, w in theirs.items() if n not in free], "weight_decay": 0.1},
        {"params": [w for n, w in theirs.items() if n in free], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, betas=settings.betas)
    for step, rate in enumerate([0.1, 0.03, 0.01]):
        torch.manual_seed(step)
        for name, weight in learner.parameters.items():
            some = step != 1 or name not in free  # a step without a gradient is none
            theirs[name].grad = weight.grad = torch.randn_like(weight) if some else None
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        learner.optimizer.step(rate)
    for name, weight in learner.parameters.items():
        assert weight.grad is None
        assert torch.allclose(weight, theirs[name], atol=1e-6)


def test_a_fit_does_not_import_the_compiler():
    """It takes two seconds."""
    code = (
        "import sys, torch; from tests.training.test_training import *; "
        "fit(toy_model(), ToyData(), ArdmLoss(), settings=SETTINGS); "
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_gradients_are_clipped():
    """With AdamW's scale-free step a clip shows in the moments: they are as small as the clip."""
    learner = Learner(toy_model(), Fixed(), replace(SETTINGS, clip=1e-3), Team(torch.device("cpu")))
    x, _ = ToyData().batch(0, 8, generator=torch.Generator())
    _, norm = learner.learn([(x, ())], rate=0.0)
    moments = torch.cat([s["exp_avg"].flatten() for s in learner.optimizer.state.values()])
    assert norm > 0.1
    assert moments.norm() == pytest.approx((1 - 0.9) * 1e-3, rel=1e-3)


# Stopping.


def test_patience_stops_and_returns_the_best():
    values = iter([3.0, 2.0, 2.5, 2.2, 1.0])
    seen = []

    def valid(model):
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return next(values)

    settings = replace(SETTINGS, evaluate_every=2, patience=2)
    model, done = train(settings=settings, valid=valid)
    assert (done.ending, done.step, done.best, done.best_step) == ("patience", 8, 2.0, 4)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, seen[1][name])


def test_patience_survives_a_stop(tmp_path):
    """The best weights and the count of evaluations are in the checkpoint."""
    values = {2: 3.0, 4: 2.0, 6: 2.5, 8: 2.2}
    settings = replace(SETTINGS, evaluate_every=2, patience=2, checkpoint_every=1)

    def run(folder, data):
        done = []
        return train(folder, data, settings, lambda _: done.append(1) or values[2 * counted(done)])

    def counted(done):
        return len(done) + offset

    offset = 0
    straight, _ = run(None, ToyData())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ToyData(at=7, happening=interrupt))
    offset = 3
    resumed, done = run(tmp_path, ToyData())
    assert (done.ending, done.step) == ("patience", 8)
    assert_same_weights(straight, resumed)


@pytest.mark.parametrize(
    ("clock", "reading"), [("wall", "perf_counter"), ("processor", "process_time")]
)
def test_a_budget_of_minutes_ends(monkeypatch, clock, reading):
    """A clock that advances a second at each look: a step takes one, and so does the set-up."""
    seconds = iter(range(1000))
    monkeypatch.setattr(f"anyorder.training.loop.{reading}", lambda: next(seconds))
    settings = TrainingSettings(batch=8, minutes=0.1, clock=clock, log_every=1)
    _, done = train(settings=settings, valid=None)
    assert (done.step, done.seconds, done.setup, done.ending) == (5, 6, 1, "budget")


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(tmp_path):
    class Diverging(Fixed):
        def loss(self, model, x, drawn):
            losses = super().loss(model, x, drawn)
            self.times = getattr(self, "times", 0) + 1
            return losses * (math.nan if self.times > 4 else 1)

    settings = replace(SETTINGS, log_every=100, evaluate_every=None, checkpoint_every=1)
    with pytest.raises(ConfigError, match=r"diverged by step 5.*Lower `learning_rate`"):
        train(tmp_path, settings=settings, objective=Diverging())
    assert all(weight.isfinite().all() for weight in load_model(tmp_path).parameters())
    assert (tmp_path / "latest").read_text().split() == ["step-00000004", "step-00000003"]


def test_ctrl_c_ends_the_step_first(tmp_path, undisturbed):
    """A real signal in the middle of a step: the step is done, then the run stops."""
    data = ToyData(at=4, happening=lambda: os.kill(os.getpid(), signal.SIGINT))
    former = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data)
    assert signal.getsignal(signal.SIGINT) is former
    assert newest_step(tmp_path) == 5
    resumed, _ = train(tmp_path)
    assert_same_weights(undisturbed[0], resumed)


def test_a_step_that_is_half_done_is_not_saved(tmp_path, undisturbed):
    class Impatient(ArdmLoss):
        def loss(self, model, x, drawn):
            self.times = getattr(self, "times", 0) + 1
            return interrupt() if self.times == 6 else super().loss(model, x, drawn)

    objective = Impatient()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, objective=objective)
    assert newest_step(tmp_path) == 3
    resumed, _ = train(tmp_path, objective=objective)
    assert_same_weights(undisturbed[0], resumed)


def newest_step(folder):
    newest = (folder / "latest").read_text().split()[0]
    return json.loads((folder / newest / "training.json").read_text())["fit"]["step"]


def test_a_late_second_ctrl_c_does_not_wait(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("anyorder.training.loop.monotonic", lambda: now[0])

    def thrice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # of an impatient finger: still waits for the step
        now[0] += 6
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("the late one must be heard at once")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.shield():
        thrice()


def test_nothing_is_heard_while_saving():
    with Interrupts() as interrupts, interrupts.deaf():
        signal.raise_signal(signal.SIGINT)
    assert not interrupts.asked


def test_a_stopped_training_says_what_was_saved(tmp_path):
    data = ToyData(5, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Stopped, match="Saved at step 6"):
        fit(toy_model(), data, ArdmLoss(), settings=SETTINGS, folder=tmp_path)
    with pytest.raises(Stopped, match="nothing was saved"):
        fit(toy_model(), data, ArdmLoss(), settings=SETTINGS)


def test_rows_of_a_tensor_are_all_seen_before_any_is_seen_again():
    rows, generator = Rows(torch.arange(10)[:, None]), torch.Generator()
    seen = [rows.batch(step, 4, generator=generator)[0].flatten().tolist() for step in range(5)]
    flat = [row for batch in seen for row in batch]
    assert sorted(flat[:10]) == sorted(flat[10:]) == list(range(10))
    assert flat[:10] != flat[10:]
    weighted = Rows(torch.arange(10)[:, None], weights=torch.eye(10)[3])
    assert set(weighted.batch(0, 8, generator=generator)[0].flatten().tolist()) == {3}
    done = fit(toy_model(), torch.zeros(20, NUM_VARIABLES).long(), ArdmLoss(), settings=SETTINGS)
    assert done.step == 12


def test_noise_is_added_anew_column_by_column():
    x = torch.zeros(4000, 2)
    rows = Rows(x, noise=torch.tensor([0.5, 0.0]))
    drawn, again = (
        rows.batch(0, 4000, generator=torch.Generator().manual_seed(seed))[0] for seed in (0, 1)
    )
    # The standard error of a standard deviation is 0.5 / sqrt(2 * 4000), about 0.006.
    assert drawn[:, 0].std().item() == pytest.approx(0.5, abs=0.03)
    assert not torch.equal(drawn, again)
    assert not drawn[:, 1].any()
    assert rows.describe() != Rows(x).describe()
    assert Rows(x, noise=0.0).describe() == Rows(x).describe()


# Settings, schedules, precision, what is shown.


def test_warmup_and_schedules():
    settings = TrainingSettings(steps=100, learning_rate=2.0, warmup=10)
    rates = [learning_rate(settings, step, 0.0) for step in (0, 9, 50, 75, 100)]
    half = [(1 + math.cos(math.pi * share)) / 2 for share in (0, 0.09, 0.5, 0.75, 1)]
    assert rates == pytest.approx([0.2 * half[0], *(2 * share for share in half[1:])])
    timed = TrainingSettings(minutes=2, learning_rate=2.0, warmup=0)
    assert learning_rate(timed, 7, 60.0) == pytest.approx(1.0)
    assert learning_rate(timed, 7, 500.0) == pytest.approx(0.0)
    slow = replace(timed, warmup=100, schedule="constant")
    rates = [learning_rate(slow, step, seconds) for step, seconds in ((0, 0), (2, 6), (4, 12))]
    assert rates == pytest.approx([0.02, 1.0, 2.0])  # a tenth of the minutes, not a hundred steps
    constant = TrainingSettings(steps=100, learning_rate=2.0, warmup=10, schedule="constant")
    assert [learning_rate(constant, step, 0.0) for step in (0, 10, 99)] == [0.2, 2.0, 2.0]
    linear = replace(constant, warmup=0, schedule="linear")
    assert [learning_rate(linear, step, 0.0) for step in (0, 50, 100)] == [2.0, 1.0, 0.0]


def test_low_precision_is_for_gpus():
    assert low_precision("auto", "cpu") is None
    assert low_precision("auto", "cuda") is torch.bfloat16
    assert low_precision("bfloat16", "cuda") is torch.bfloat16
    assert low_precision("float32", "cuda") is None
    assert isinstance(autocast("auto", "cpu"), nullcontext)
    with pytest.raises(ConfigError, match='"bfloat16" is for GPUs'):
        train(settings=replace(SETTINGS, precision="bfloat16"))


WRONG = {
    "budget": ({"steps": None}, "`steps` or `minutes` must be given"),
    "batch": ({"batch": 0}, "`batch` must be a whole number"),
    "minutes": ({"minutes": -1}, "`minutes` must be a number, above 0"),
    "rate": ({"learning_rate": math.inf}, "`learning_rate` must be a number"),
    "ema": ({"ema": 1.0}, "`ema` must be a number, above 0 and below 1"),
    "betas": ({"betas": (0.9,)}, "`betas` must be two numbers"),
    "schedule": ({"schedule": "cosin"}, 'Did you mean "cosine"'),
    "accumulate": ({"accumulate": 3}, "`accumulate` must divide `batch`; got 3 and 8"),
    "draws": ({"accumulate": 2, "draws": 4}, "`draws` must divide `accumulate`"),
    "patience": ({"patience": 1, "evaluate_every": None}, "`patience` counts evaluations"),
    "sharding": ({"sharding": "zero"}, "`sharding` must be one of"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_explained(case):
    changes, sentence = WRONG[case]
    with pytest.raises(ConfigError, match=sentence):
        replace(SETTINGS, **changes)


def test_patience_needs_an_evaluation():
    with pytest.raises(ConfigError, match="`patience` needs `valid`"):
        train(settings=replace(SETTINGS, patience=1), valid=None)


def test_data_must_give_the_rows_asked_for():
    class Short(ToyData):
        def batch(self, step, size, *, generator):
            return super().batch(step, size - 1, generator=generator)

    with pytest.raises(ConfigError, match=r"8 rows of 5 variables a step; got shape \(7, 5\)"):
        train(data=Short())


def test_metrics_are_lines_of_json(undisturbed):
    _, done, folder = undisturbed
    entries = lines(folder)
    assert [e["step"] for e in entries if "loss" in e] == list(range(1, 13))
    assert [e["step"] for e in entries if "held_out" in e] == [4, 8, 12]
    assert entries[-1]["held_out"] == done.held_out
    wanted = {"step", "loss", "gradient", "learning_rate", "rows_per_second", "seconds"}
    assert set(entries[0]) == wanted
    assert entries[0]["learning_rate"] == pytest.approx(0.02 / 3)


def test_metrics_are_cut_where_the_run_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 2, "held_out": 1}\n{"step": 3}\n{"st')
    Metrics(tmp_path, step=2, evaluated=0).close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_tensorboard_is_optional(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("anyorder.training.progress.find_spec", lambda _: None)
    Metrics(tmp_path, tensorboard=True).close()
    assert "TensorBoard is not installed" in caplog.text


def test_the_progress_line_is_on_standard_error(capsys):
    with ProgressLine(shown=True) as line:
        line.show(0.5, step=1200, loss=1.5, held_out=2.25, speed=3000.0)
    shown = capsys.readouterr()
    assert shown.out == ""
    for words in ("step 1,200", "2.1640 bits", "held-out 2.2500", "3,000 rows/s"):
        assert words in " ".join(shown.err.split())


def test_nothing_is_printed(capsys, tmp_path):
    train(tmp_path)
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""


# What the subprocesses above run.


def _kill(folder):
    train(folder, ToyData(at=7, happening=lambda: os.kill(os.getpid(), signal.SIGKILL)))


def _tell_threads(file):
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").glob("*")]
    file.write_text("".join(names))


def _together(folder):
    # Registered before all else, so that it is done last.
    atexit.register(_tell_threads, folder / f"threads-{os.environ['RANK']}")
    for how, sharding in (("ddp", "none"), ("fsdp", "fsdp")):
        settings = replace(PLAIN, sharding=sharding)
        model = toy_model(seed=int(os.environ["RANK"]))  # the first one's weights count
        done = fit(
            model, ToyData(), ArdmLoss(), settings=settings, valid=held_out, folder=folder / how
        )
        if os.environ["RANK"] == "0":
            save_model(folder / f"{how}-returned", model, notes={"step": done.step})
    # One process is told to stop in a step, and both do, after it.
    stop = (lambda: os.kill(os.getpid(), signal.SIGINT)) if os.environ["RANK"] == "1" else None
    data = ToyData(at=5, happening=stop or (lambda: None))
    try:
        fit(
            toy_model(),
            data,
            ArdmLoss(),
            settings=settings,
            valid=held_out,
            folder=folder / "stopped",
        )
    except KeyboardInterrupt:
        assert data.steps == list(range(6))
    else:
        raise AssertionError("Ctrl-C was not heard")


if __name__ == "__main__":
    {"kill": _kill, "together": _together}[sys.argv[1]](Path(sys.argv[2]))


def test_two_trainings_do_not_share_a_folder(tmp_path):
    refused = []

    def meddle():
        with pytest.raises(CheckpointError, match="Another process is training") as error:
            fit(toy_model(), ToyData(), ArdmLoss(), settings=SETTINGS, folder=tmp_path)
        refused.append(error)

    fit(toy_model(), ToyData(2, meddle), ArdmLoss(), settings=SETTINGS, folder=tmp_path)
    assert len(refused) == 1


def test_a_finished_cosine_run_says_why_it_cannot_be_trained_longer(tmp_path):
    fit(toy_model(), ToyData(), ArdmLoss(), settings=SETTINGS, folder=tmp_path)
    longer = replace(SETTINGS, steps=20)
    with pytest.raises(CheckpointError, match=r'`settings.steps` is 12 .* schedule="constant"'):
        fit(toy_model(), ToyData(), ArdmLoss(), settings=longer, folder=tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, torch.nn.Linear(2, 2), "`model` must be an AnyOrderModel; got Linear"),
        (1, [[0, 1]], "`data` must have a method `batch`; got list"),
        (2, UniformCardinality(3), "`objective` must be an Objective; got UniformCardinality"),
    ],
)
def test_arguments_in_the_wrong_place_are_named(place, value, words):
    arguments = [toy_model(), ToyData(), ArdmLoss()]
    arguments[place] = value
    with pytest.raises(ConfigError, match=words):
        fit(*arguments, settings=SETTINGS)


def test_rows_of_another_width_are_refused():
    class Wide(ToyData):
        def batch(self, step, size, *, generator):
            x, available = super().batch(step, size, generator=generator)
            return torch.cat([x, x], dim=1), available

    with pytest.raises(ConfigError, match=f"rows of {NUM_VARIABLES} variables a step"):
        fit(toy_model(), Wide(), ArdmLoss(), settings=SETTINGS)


class FlushingSeen(ArdmLoss):
    """Remembers whether denormal numbers were zero when a loss was computed."""

    seen = ()

    def loss(self, model, x, drawn):
        self.seen = (*self.seen, is_flushing())
        return super().loss(model, x, drawn)


def test_denormal_numbers_are_zero_in_a_step_and_nowhere_else():
    objective = FlushingSeen()
    train(settings=replace(SETTINGS, steps=2), objective=objective)
    assert objective.seen == (True, True)
    assert not is_flushing()
    with denormals_flushed():
        with denormals_flushed():
            assert is_flushing()
        assert is_flushing()  # as it was before
    assert not is_flushing()


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"RANK": "1"}, "it is 1, and WORLD_SIZE is not set"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "it is 2, and WORLD_SIZE is 2"),
        ({"RANK": "x"}, 'RANK must be a whole number, 0 or more; got "x"'),
        ({"WORLD_SIZE": "abc"}, 'WORLD_SIZE must be a whole number, 1 or more; got "abc"'),
        ({"WORLD_SIZE": "0"}, 'WORLD_SIZE must be a whole number, 1 or more; got "0"'),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR is not set"),
    ],
    ids=str,
)
def test_processes_that_are_told_wrongly_where_they_stand_say_so(told, sentence, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert is_first_process()
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    for ask in (is_first_process, lambda: Team(torch.device("cpu"))):
        with pytest.raises(ConfigError, match=sentence):
            ask()
