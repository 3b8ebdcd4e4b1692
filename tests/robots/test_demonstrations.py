"""Demonstrations: shapes, splits, files; the toy; and, where it is installed, the simulator."""

import importlib.util

import numpy as np
import pytest

from anyorder.errors import ConfigError, SchemaError
from anyorder.robots import kitchen
from anyorder.robots import kitchen as robot_files
from anyorder.robots.episodes import Demonstrations
from anyorder.robots.kitchen import (
    GOALS,
    JOINTS,
    POSITIONS,
    SCORED,
    SEEN,
    Kitchen,
    Logs,
    ToyKitchen,
    completed_share,
    completed_tasks,
    load_kitchen,
    read_d4rl,
    read_logs,
    read_minari,
    replayed,
    toy_demonstrations,
)

with_simulator = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium_robotics") is None, reason="needs anyorder[robot]"
)


def some(lengths=(3, 2, 4), tasks=(("kettle",), ("microwave", "kettle"), ())):
    steps = sum(lengths)
    seen = np.arange(steps * 2, dtype=np.float32).reshape(steps, 2)
    actions = np.linspace(-1, 1, steps, dtype=np.float32)[:, None]
    return Demonstrations("some", seen, actions, tuple(lengths), tuple(map(frozenset, tasks)))


def test_demonstrations_are_chosen_whole():
    chosen = some().chosen([2, 0])
    assert chosen.lengths == (4, 3)
    assert chosen.observations[:, 0].tolist() == [10, 12, 14, 16, 0, 2, 4]
    assert chosen.tasks == (frozenset(), frozenset({"kettle"}))


def test_those_that_hold_all_of_some_tasks_are_left_out():
    assert len(some().without_all_of(["kettle"])) == 1
    assert some().without_all_of(["microwave", "kettle"]).lengths == (3, 4)
    with pytest.raises(ConfigError, match="No demonstration is left"):
        some(tasks=[["kettle"]] * 3).without_all_of(["kettle"])


def test_a_split_shares_no_demonstration():
    demonstrations = toy_demonstrations(20)
    parts = demonstrations.split(held_out=0.2)
    assert [len(part) for part in parts] == [12, 4, 4]
    rows = [{tuple(row) for row in part.observations.tolist()} for part in parts]
    assert not rows[0] & rows[1]
    assert not rows[0] & rows[2]
    again = demonstrations.split(held_out=0.2)
    assert np.array_equal(parts.train.observations, again.train.observations)
    with pytest.raises(ConfigError, match="too few"):
        some().split(held_out=0.5)


def test_a_file_of_them_is_read_back(tmp_path):
    demonstrations = some()
    demonstrations.save(tmp_path / "deep" / "some.npz")
    read = Demonstrations.load(tmp_path / "deep" / "some.npz")
    assert (read.name, read.lengths, read.tasks) == ("some", (3, 2, 4), demonstrations.tasks)
    assert np.array_equal(read.observations, demonstrations.observations)
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(SchemaError, match="holds no demonstrations"):
        Demonstrations.load(tmp_path / "other.npz")


WRONG = {
    "lengths": ({"lengths": (3, 2)}, "lengths that add up"),
    "tasks": ({"tasks": (frozenset(),)}, "its set of tasks"),
    "numbers": ({"actions": np.full((9, 1), np.nan, np.float32)}, "finite"),
    "shape": ({"actions": np.zeros(9, np.float32)}, "rows of observations and of actions"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_together_is_refused(name):
    change, words = WRONG[name]
    plain = some()
    arguments = {
        key: getattr(plain, key) for key in ("name", "observations", "actions", "lengths", "tasks")
    }
    with pytest.raises(SchemaError, match=words):
        Demonstrations(**{**arguments, **change})


def test_the_toy_has_the_shapes_of_the_kitchen():
    toy = ToyKitchen()
    seen = toy.start(3)
    assert seen.shape == (POSITIONS,)
    assert np.array_equal(seen, ToyKitchen().start(3))
    step = toy.step(np.zeros(JOINTS))
    assert step.observation.shape == (POSITIONS,)
    assert not step.is_over


def test_demonstrations_of_the_toy_do_three_tasks():
    demonstrations = toy_demonstrations(12)
    assert all(len(done) >= 3 for done in demonstrations.tasks)
    assert demonstrations.actions.shape == (demonstrations.num_steps, JOINTS)
    # What was done, done again from where it was seen, leads to what was seen next.
    toy = ToyKitchen()
    assert np.array_equal(toy.start(0), demonstrations.observations[0])
    for place in range(demonstrations.lengths[0] - 1):
        seen = toy.step(demonstrations.actions[place]).observation
        assert np.allclose(seen, demonstrations.observations[place + 1], atol=1e-6)


def rows_with(task):
    """Two steps of the kitchen, in the second of which a task is done."""
    rows = np.full((2, POSITIONS), 5.0, dtype=np.float32)
    first, goal = GOALS[task]
    rows[1, first : first + len(goal)] = goal
    return rows


@pytest.mark.parametrize("task", GOALS)
def test_a_task_is_done_where_its_thing_is_at_its_goal(task):
    assert completed_tasks(rows_with(task)) == {task}
    assert completed_tasks(rows_with(task)[:1]) == frozenset()


def test_d4rls_file_is_cut_at_its_terminals(tmp_path):
    h5py = pytest.importorskip("h5py")
    seen = np.zeros((5, 60))
    seen[:2, :30], seen[2:4, :30] = rows_with("kettle"), rows_with("microwave")
    with h5py.File(tmp_path / "kitchen-mixed-v0.hdf5", "w") as file:
        file["observations"], file["actions"] = seen, np.zeros((5, 9))
        file["terminals"] = np.array([0, 1, 0, 1, 0])
    found = load_kitchen(tmp_path, tmp_path / "cache")
    assert found.name == "D4RL kitchen-mixed-v0"
    assert found.lengths == (2, 2, 1)
    assert found.tasks[:2] == (frozenset({"kettle"}), frozenset({"microwave"}))
    assert found.observations.shape == (5, POSITIONS)


def test_minaris_episodes_have_one_observation_more(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "mixed-v2" / "data").mkdir(parents=True)
    seen = np.zeros((3, 59))
    seen[:2, list(SEEN)] = rows_with("kettle")
    with h5py.File(tmp_path / "mixed-v2" / "data" / "main_data.hdf5", "w") as file:
        for name in ("episode_10", "episode_2"):
            file[f"{name}/observations/observation"] = seen
            file[f"{name}/actions"] = np.full((2, 9), 0.5 if name == "episode_2" else -0.5)
    found = load_kitchen(tmp_path, tmp_path / "cache")
    assert found.name == "Minari mixed-v2"
    assert found.lengths == (2, 2)
    assert found.tasks == (frozenset({"kettle"}),) * 2
    assert found.actions[0, 0] == 0.5  # by number, not by name


def test_files_that_are_not_there_or_not_theirs(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"put kitchen/demos\.npz"):
        load_kitchen(tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="minari download"):
        read_d4rl(tmp_path / "kitchen-mixed-v0.hdf5")
    (tmp_path / "a.hdf5").write_text("no")
    with pytest.raises(SchemaError, match="not an HDF5 file"):
        read_d4rl(tmp_path / "a.hdf5")
    monkeypatch.setattr(robot_files, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"anyorder\[uci\]"):
        read_minari(tmp_path)


def logs_file(folder, steps=4):
    (folder / "kitchen").mkdir()
    start = np.zeros((steps, POSITIONS), dtype=np.float32)
    start[:, :9] = [0.148, -1.768, 1.844, -2.477, 0.26, 0.713, 1.595, 0.048, 0.037]
    start[:, 23:30] = [-0.269, 0.35, 1.619, 1.006, 0.004, -0.007, 0]
    np.savez(
        folder / "kitchen" / "demos.npz",
        qpos=start,
        ctrl=start[:, :9] + 0.02,
        lengths=np.array([steps]),
        task=np.array(["friday_microwave_kettle_topknob_switch"]),
    )
    return folder


def test_logs_say_what_was_wanted(tmp_path):
    logs = read_logs(logs_file(tmp_path))
    assert logs.wanted == (frozenset({"microwave", "kettle", "top burner", "light switch"}),)
    ((start, commands),) = logs
    assert start.shape == (POSITIONS,)
    assert commands.shape == (4, JOINTS)
    with pytest.raises(ConfigError, match="relay-policy-learning"):
        read_logs(tmp_path / "kitchen")
    np.savez(tmp_path / "odd.npz", qpos=np.zeros((2, 3)))
    with pytest.raises(SchemaError, match="recorded demonstrations"):
        read_logs(tmp_path / "odd.npz")


BROKEN_LOGS = {
    "no length": {"lengths": np.array([5, -1])},
    "a length of nothing": {"lengths": np.array([4, 0])},
    "more tasks": {"task": np.array(["kettle", "kettle"])},
    "no list": {"lengths": np.array(4)},
    "words": {"qpos": np.full((4, POSITIONS), "x")},
    "not finite": {"ctrl": np.full((4, JOINTS), np.nan)},
}


@pytest.mark.parametrize("name", BROKEN_LOGS)
def test_logs_that_make_no_sense_are_named(tmp_path, name):
    file = logs_file(tmp_path) / "kitchen" / "demos.npz"
    with np.load(file) as arrays:
        np.savez(tmp_path / "broken.npz", **{**arrays, **BROKEN_LOGS[name]})
    with pytest.raises(SchemaError, match=r"broken\.npz"):
        read_logs(tmp_path / "broken.npz")


@pytest.mark.parametrize("cut", [10, 400, -30])
def test_files_that_were_cut_off_are_named(tmp_path, cut):
    file = logs_file(tmp_path) / "kitchen" / "demos.npz"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(SchemaError, match=r"demos\.npz"):
        read_logs(file)
    some().save(tmp_path / "kept.npz")
    (tmp_path / "kept.npz").write_bytes((tmp_path / "kept.npz").read_bytes()[:cut])
    with pytest.raises(SchemaError, match=r"kept\.npz"):
        Demonstrations.load(tmp_path / "kept.npz")


def test_hdf5_files_of_something_else_are_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    seen, actions = np.zeros((5, 60)), np.zeros((5, 9))
    broken = {
        "no actions": {"observations": seen, "terminals": np.ones(5)},
        "short": {"observations": seen, "actions": actions, "terminals": np.ones(3)},
        "empty": {"observations": seen[:0], "actions": actions[:0], "terminals": np.ones(0)},
    }
    for parts in broken.values():
        with h5py.File(tmp_path / "d4rl.hdf5", "w") as file:
            file.update(parts)
        with pytest.raises(SchemaError, match="d4rl"):
            read_d4rl(tmp_path / "d4rl.hdf5")
    with h5py.File(tmp_path / "minari.hdf5", "w") as file:
        file["metadata"] = np.zeros(3)
    with pytest.raises(SchemaError, match="minari"):
        read_minari(tmp_path / "minari.hdf5")


def test_the_share_that_completed_what_it_set_out_to():
    demonstrations = some()
    wanted = (frozenset({"kettle"}), frozenset({"slide cabinet"}), frozenset())
    logs = Logs(np.zeros((9, POSITIONS)), np.zeros((9, JOINTS)), (3, 2, 4), wanted)
    assert completed_share(demonstrations, logs) == (2, 3)


def test_without_the_simulator_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(kitchen, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"anyorder\[robot\]"):
        Kitchen()
    with pytest.raises(ConfigError, match=r"anyorder\[robot\]"):
        replayed(read_logs(logs_file(tmp_path)), tmp_path)


@with_simulator
def test_the_kitchen_starts_alike_and_knows_its_tasks():
    opened = Kitchen(steps=2)
    seen = opened.start(1)
    assert seen.shape == (POSITIONS,)
    assert np.array_equal(seen, opened.start(1))
    moved = opened.step(np.full(JOINTS, 0.5))
    assert moved.completed == ()
    assert not np.array_equal(moved.observation, seen)
    assert opened.step(np.zeros(JOINTS)).is_over
    from gymnasium_robotics.envs.franka_kitchen.kitchen_env import OBS_ELEMENT_GOALS

    assert {task: list(goal) for task, (_, goal) in GOALS.items()} == {
        task: goal.tolist() for task, goal in OBS_ELEMENT_GOALS.items()
    }
    assert set(SCORED) < set(GOALS)
    opened.close()


@with_simulator
def test_a_replay_leads_the_joints_to_where_they_were_told_and_is_kept(tmp_path):
    logs = read_logs(logs_file(tmp_path))
    found = replayed(logs, tmp_path / "cache", processes=1)
    # At the first step the joints are where the log has them, 0.02 radians from the command.
    assert np.allclose(found.actions[0], 0.02 / 0.08 / 2, atol=1e-3)
    assert found.observations.shape == (4, POSITIONS)
    (kept,) = (tmp_path / "cache").iterdir()
    kept.touch()
    again = replayed(logs, tmp_path / "cache", processes=1)
    assert np.array_equal(again.actions, found.actions)
