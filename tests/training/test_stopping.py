"""When a training stops: plateaus, the trapezoid of the learning rate, budgets, the verdict."""

from dataclasses import replace

import pytest
import torch

from anyorder.errors import AnyOrderWarning
from anyorder.training import loop
from anyorder.training.batches import Rows
from anyorder.training.loop import Fit, fit, late_gain, verdict
from anyorder.training.losses import ArdmLoss
from anyorder.training.settings import TrainingSettings, learning_rate, leaving, share_done
from tests.training.test_training import UNTIMED, interrupt, toy_model

ROWS = Rows(torch.randint(0, 2, (40, 5), generator=torch.Generator().manual_seed(0)))
TRAPEZOID = TrainingSettings(batch=8, steps=40, evaluate_every=2, schedule="trapezoid", warmup=0)


def curve(*means, rows=100, noise=1.0):
    """Losses that differ much between rows, and between evaluations by what is said."""
    generator = torch.Generator().manual_seed(0)
    each = torch.randn(rows, generator=generator)
    own = noise * torch.randn(len(means), rows, generator=generator)
    return each + torch.tensor(means)[:, None] + 0.1 * (own - own.mean(dim=1, keepdim=True))


def test_a_gain_is_measured_in_paired_standard_errors():
    """The means differ by 0.1; their own error is 0.1, that of the differences 0.01."""
    found = late_gain(curve(0.2, 0.2, 0.1, 0.1))
    losses = curve(0.2, 0.2, 0.1, 0.1)
    gains = losses[:2].mean(0) - losses[2:].mean(0)
    assert found == pytest.approx(float(gains.mean() / gains.std() * 10), rel=1e-4)
    assert found > 8


def test_it_is_too_early_to_tell_from_three_evaluations():
    assert late_gain(curve(3.0, 2.0, 1.0)) is None


def test_thirds_of_the_evaluations_are_compared():
    losses = curve(9.0, 9.0, 9.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0)
    gains = losses[3:6].mean(0) - losses[6:].mean(0)
    assert late_gain(losses) == pytest.approx(float(gains.mean() / gains.std() * 10), rel=1e-4)
    assert late_gain(torch.ones(6, 5)) == 0  # all rows alike


def test_a_trapezoid_is_constant_for_half_of_the_budget():
    rates = [learning_rate(TRAPEZOID, step, 0.0) / TRAPEZOID.learning_rate for step in range(41)]
    assert rates[:21] == [1.0] * 21
    assert rates[30] == pytest.approx(0.5)
    assert rates[40] == 0


def test_after_a_plateau_it_decays_for_as_long():
    rates = [learning_rate(TRAPEZOID, step, 0.0, plateau=0.1) for step in (4, 6, 8)]
    assert rates == pytest.approx([TRAPEZOID.learning_rate * share for share in (1, 0.5, 0)])


def test_what_was_spent_before_leaves_less():
    minute = TrainingSettings(minutes=1)
    assert share_done(minute, 0, 30.0) == 0.5
    assert share_done(minute, 0, 40.0, setup=20.0) == 0.5
    assert leaving(minute, 20.0, 0.25) == 50.0


def stopping_at(values, folder=None, data=ROWS, settings=TRAPEZOID):
    """Trains with held-out losses by evaluation; the last one goes on."""
    noise = torch.randn(20, generator=torch.Generator().manual_seed(0))
    model, done = toy_model(), []

    def valid(_):
        done.append(None)
        return noise + values[min(len(done), len(values)) - 1] + 1e-3 * noise * len(done)

    return model, fit(model, data, ArdmLoss(), settings=settings, valid=valid, folder=folder)


def test_a_plateau_lets_the_rate_decay_and_ends():
    _, found = stopping_at([5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    assert (found.plateau, found.step, found.ending) == (0.4, 32, "plateau")
    assert verdict(replace(found, **UNTIMED)).startswith("Converged after 0 s and 32 steps: held-")


def test_a_budget_ends_what_still_improves():
    _, found = stopping_at([20.0 - i for i in range(20)])
    assert (found.plateau, found.step, found.ending) == (None, 40, "budget")
    assert "more minutes would pay" in verdict(found)


def test_the_curve_survives_a_stop(tmp_path):
    """A stopped run knows all evaluations, so that it finds the same plateau."""

    class Stopping(Rows):
        def batch(self, step, size, *, generator):
            if step == 13 and not list(tmp_path.glob("stopped")):
                (tmp_path / "stopped").touch()
                interrupt()
            return super().batch(step, size, generator=generator)

    values = [5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    noise = torch.randn(20, generator=torch.Generator().manual_seed(0))

    def run(folder, rows):
        model, steps = toy_model(), []

        def valid(_):
            steps.append(None)
            return noise + values[min(len(steps) + offset, len(values)) - 1]

        return model, fit(model, rows, ArdmLoss(), settings=TRAPEZOID, valid=valid, folder=folder)

    offset = 0
    straight, one = run(None, ROWS)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", Stopping(ROWS.x))
    offset = 6
    resumed, two = run(tmp_path / "run", Stopping(ROWS.x))
    assert replace(one, **UNTIMED) == replace(two, **UNTIMED)
    for name, tensor in straight.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name])


def test_a_busy_machine_is_warned_of(monkeypatch):
    """The wall clock goes ten times as fast as the processor's."""
    wall, processor = iter(range(0, 100_000, 10)), iter(range(10_000))
    monkeypatch.setattr(loop, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(loop, "process_time", lambda: next(processor))
    settings = TrainingSettings(batch=8, minutes=1, evaluate_every=2)
    model, falling = toy_model(), iter(range(10_000, 0, -1))
    with pytest.warns(AnyOrderWarning, match=r"The machine was busy: training computed for \d+ of"):
        fit(
            model,
            ROWS,
            ArdmLoss(),
            settings=settings,
            valid=lambda _: torch.ones(3) * next(falling),
        )


def test_a_verdict_says_when_it_was_best():
    found = Fit(step=90, seconds=61, best=1.068, best_seconds=13.2, improving=True)
    assert verdict(replace(found, ending="patience")) == (
        "Converged after 61 s and 90 steps: held-out loss best 1.068 at 13 s."
    )
    assert verdict(replace(found, ending="budget")).startswith("Still improving after 61 s")
    assert verdict(replace(found, best=None)) == ""
