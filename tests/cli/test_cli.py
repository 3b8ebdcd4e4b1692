"""The command line answers at once, and says what to do in one sentence."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from cyclopts import App

from anyorder import CheckpointError, __version__
from anyorder.cli.app import app, main, run
from anyorder.cli.console import note, show
from anyorder.training.learner import Learner


def test_help_does_not_wait_for_torch():
    code = (
        "import sys, anyorder.cli.app as cli\n"
        "try: cli.main(['--help'])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reproduce" in done.stdout


def test_a_query_imports_no_more_than_it_needs():
    """scikit-learn, scipy and matplotlib take longer to import than a query takes to answer."""
    saved = Path(__file__).parent.parent / "saved_runs" / "0.1.0" / "table"
    code = (
        "import sys, anyorder.cli.app as cli\n"
        f"cli.main(['query', {str(saved)!r}, '--of', 'job', '--json'])\n"
        "found = {'sklearn', 'scipy', 'matplotlib'} & {*sys.modules}\n"
        "assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["columns"]


def test_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out.strip() == __version__


BAD_COMMANDS = {
    "verb": (["reprduce"], 'Did you mean "reproduce"?'),
    "table": (["reproduce", "table77"], 'Did you mean "table7"?'),
    "flag": (["reproduce", "table7", "--sampels", "3"], "Did you mean --samples?"),
    "word": (["reproduce", "table7", "--samples", "many"], '"many" is not a whole number'),
    "half": (["reproduce", "table7", "--samples", "1.5"], '"1.5" is not a whole number'),
    "none": (["reproduce", "table7", "--samples", "0"], "`samples` must be a whole number, from 1"),
    "seed": (["reproduce", "table7", "--seed", "-1"], "`seed` must be a whole number, from 0 to"),
    "folder": (["reproduce", "table7", "--samples", "9", "--record", "."], "is a folder"),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_mistakes_get_one_sentence_and_exit_code_2(name, capsys):
    command, sentence = BAD_COMMANDS[name]
    with pytest.raises(SystemExit) as stopped:
        main(command)
    streams = capsys.readouterr()
    assert stopped.value.code == 2
    assert streams.err.startswith("error: ")
    assert streams.err.count("\n") == 1
    assert sentence in streams.err


NO_MEMORY = {
    "python": MemoryError("Unable to allocate 30. GiB for an array"),
    "torch": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    "cuda": RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
}


@pytest.mark.parametrize("name", NO_MEMORY)
def test_what_does_not_fit_the_memory_is_one_sentence(name, capsys):
    def greedy():
        raise NO_MEMORY[name]

    with pytest.raises(SystemExit) as stopped:
        run(App(default_command=greedy), [])
    assert stopped.value.code == 2
    assert "Make something smaller: `--n`" in capsys.readouterr().err


def test_other_errors_of_torch_are_not_hidden():
    def wrong():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        run(App(default_command=wrong), [])


def test_terminals_are_sent_no_commands(capsys):
    escape = "a\x1b]0;title\x07\x9b2Jb"
    show([escape], [[escape]], title=escape)
    note(escape)
    with pytest.raises(SystemExit):
        main(["info", escape])
    streams = capsys.readouterr()
    shown = streams.out + streams.err
    assert shown.count("␛]0;title␇�2Jb") == 5
    assert not set(shown) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))


def test_no_verb_rounds_a_number():
    # cyclopts by itself takes 1.5 for an int and cuts it off
    verbs = [app[name].default_command for name in app if not name.startswith("-")]
    tables = app["reproduce"]
    verbs += [tables[name].default_command for name in tables if not name.startswith("-")]
    for verb in filter(None, verbs):
        for option, kind in get_type_hints(verb, include_extras=True).items():
            parts = get_args(kind) if get_origin(kind) is UnionType else [kind]
            assert int not in parts, f"{option} of {verb.__name__} must be a Whole"


def test_debug_shows_where_an_error_came_from(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        main(["info", str(tmp_path), "--debug"])


def test_shells_can_be_taught(capsys):
    main(["--help"])
    assert "--install-completion" in capsys.readouterr().out
    assert "infill" in app.generate_completion(shell="bash")


def test_ctrl_c_is_clean(capsys, monkeypatch):
    for words, sentence in (((), "Nothing more was done."), (("Saved at 3.",), "Saved at 3.")):

        def interrupted(words=words, **_):
            raise KeyboardInterrupt(*words)

        monkeypatch.setattr("anyorder.reproduce.table7.table7", interrupted)
        with pytest.raises(SystemExit) as stopped:
            main(["reproduce", "table7"])
        assert stopped.value.code == 130
        assert capsys.readouterr().err == f"interrupted: {sentence}\n"


@pytest.mark.parametrize("late", [False, True])
def test_a_fit_that_is_interrupted_says_how_to_go_on(late, tmp_path, capsys, monkeypatch):
    command = ["fit", "digits", "--layers", "1", "--width", "16", "--heads", "2", "--size", "2"]
    command += ["--steps", "4", "--out", str(tmp_path)]
    asked = []

    def interrupting(*given, original=Learner.learn):
        asked.append(given)
        if len(asked) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(*given)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if late:
            patched.setattr("anyorder.images.cli.conditional_bits", interrupted)
        else:
            patched.setattr(Learner, "learn", interrupting)
        with pytest.raises(SystemExit) as stopped:
            main(command)
    assert stopped.value.code == 130
    line = capsys.readouterr().err.splitlines()[-1]
    place = "the last checkpoint, if" if late else "this checkpoint."
    assert re.match(
        rf"interrupted: .*the same (call or )?command (goes on|resumes) from {place}", line, re.I
    )
    main(command)
    assert (tmp_path / "model.json").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "table7", "--samples", "9", "--record", str(tmp_path / "file" / "x")])
    assert stopped.value.code == 2
    assert f"{tmp_path / 'file'}" in capsys.readouterr().err


def test_other_errors_keep_their_traceback(monkeypatch):
    def broken(**_):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("anyorder.reproduce.table7.table7", broken)
    with pytest.raises(ValueError, match="a mistake of ours"):
        main(["reproduce", "table7"])


def test_table7_prints_json_as_its_last_line(capsys):
    main(["reproduce", "table7", "--samples", "2000", "--json"])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    laws = {row["model"] for row in document["rows"] if row["metric"] == "entropy_exact_nats"}
    assert laws >= {"M", "rnd_path", "mac_path", "mac_path_cr", "cond_path_cr"}


SERVE = {
    "no run": (["serve", "norun"], '"norun" holds no checkpoint'),
    "others": (["serve", "shipped", "--host", "0.0.0.0"], "set a `--token` that they must bear"),
    "token": (["serve", "shipped", "--token", "short"], "16 characters or more; it has 5"),
    "port": (["serve", "shipped", "--port", "99999"], "`port` must be a whole number, from 0 to"),
}


@pytest.mark.parametrize("name", SERVE)
def test_what_cannot_be_served_is_told_in_a_sentence(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANYORDER_TOKEN", raising=False)
    command, sentence = SERVE[name]
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_serving_without_its_extra_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(SystemExit):
        main(["serve", "shipped"])
    assert 'pip install "anyorder[serve]"' in capsys.readouterr().err


def test_a_model_is_served_until_it_is_told_to_stop():
    command = [sys.executable, "-m", "anyorder", "serve", "shipped", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline()).group()
        with urllib.request.urlopen(f"{address}v1/model") as answer:
            assert json.load(answer)["domain"] == "text"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
