"""The command line answers at once, and says what to do in one sentence."""

import json
import subprocess
import sys

import pytest

from anyorder import CheckpointError
from anyorder.cli import app, main


def test_help_does_not_wait_for_torch():
    code = (
        "import sys, anyorder.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reproduce" in done.stdout


def test_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out.strip() == "0.1.0"


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


def test_debug_shows_where_an_error_came_from(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        main(["info", str(tmp_path), "--debug"])


def test_shells_can_be_taught(capsys):
    main(["--help"])
    assert "--install-completion" in capsys.readouterr().out
    assert "infill" in app.generate_completion(shell="bash")


def test_ctrl_c_is_clean(capsys, monkeypatch):
    for words, sentence in (((), "Stopped."), (("Stopped at 3.",), "Stopped at 3.")):

        def interrupted(words=words, **_):
            raise KeyboardInterrupt(*words)

        monkeypatch.setattr("anyorder.reproduce.table7.table7", interrupted)
        with pytest.raises(SystemExit) as stopped:
            main(["reproduce", "table7"])
        assert stopped.value.code == 130
        assert capsys.readouterr().err == f"error: {sentence}\n"


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
    assert set(document["entropy"]) >= {"M", "rnd_path", "mac_path", "mac_path_cr", "cond_path_cr"}
