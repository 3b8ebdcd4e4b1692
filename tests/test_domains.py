"""A domain that no shell has heard of is fitted, asked, checked and served by all of them."""

import asyncio
import json

import httpx
import pytest

import anyorder as ao
from anyorder import domains
from anyorder.cli.app import check, evaluate, fit_command, info, run
from anyorder.serve.app import create_app
from tests.toy_domain import Melodies, MelodyModel


@pytest.fixture
def app(monkeypatch):
    from cyclopts import App, Parameter

    monkeypatch.setattr(domains, "_registered", {})
    domains.register(Melodies())
    found = App(name="anyorder", default_parameter=Parameter(negative=()))
    for command in (fit_command(), evaluate, check, info):
        found.command(command)
    return found


@pytest.fixture
def fitted(app, tmp_path):
    (tmp_path / "songs.notes").write_text("cdef\nefga\ncegc\nagfe\n" * 4)
    files = [str(tmp_path / "songs.notes"), "--out", str(tmp_path / "run")]
    run(app, ["fit", *files, "--key", "G", "--steps", "3"])
    return tmp_path


def test_its_own_flags_reach_it_and_its_runs_are_loaded(fitted):
    model = ao.load(fitted / "run")
    assert isinstance(model, MelodyModel)
    assert model.key == "G"


def test_the_commands_ask_it(app, fitted, capsys):
    files = [str(fitted / "run"), str(fitted / "songs.notes")]
    run(app, ["evaluate", *files])
    assert json.loads(capsys.readouterr().out)["nats"] < 0
    run(app, ["check", *files, "--rows", "6", "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == 6
    run(app, ["info", files[0], "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["domain"], found["key"]) == ("melody", "G")


def test_the_server_has_its_routes(fitted):
    async def asked():
        served = httpx.ASGITransport(create_app(ao.load(fitted / "run"), name="songs"))
        async with httpx.AsyncClient(transport=served, base_url="http://localhost") as client:
            return (await client.get("/v1/model")).json()

    assert asyncio.run(asked()) == {"domain": "melody", "name": "songs", "key": "G"}


def test_flags_of_other_domains_are_refused(app, fitted, capsys):
    files = [str(fitted / "songs.notes"), "--out", str(fitted / "other")]
    with pytest.raises(SystemExit):
        run(app, ["fit", *files, "--size", "16"])
    assert '`--size` is for images, and "' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(app, ["fit", str(fitted / "nothing.txt"), "--out", "x"])
    assert "melodies (.notes)" in capsys.readouterr().err


def test_without_it_its_runs_are_refused_with_what_is_known(fitted):
    domains._registered.clear()
    with pytest.raises(ao.CheckpointError, match="holds no model of a known domain"):
        ao.load(fitted / "run")


def test_a_package_names_its_domain_by_an_entry_point(monkeypatch):
    entry = domains.metadata.EntryPoint("melody", "tests.toy_domain:MELODIES", domains.GROUP)
    monkeypatch.setattr("tests.toy_domain.MELODIES", Melodies(), raising=False)
    monkeypatch.setattr(domains.metadata, "entry_points", lambda **_: [entry])
    assert [domain.name for domain in domains.domains()] == ["table", "image", "melody", "text"]


def test_only_domains_are_registered():
    with pytest.raises(TypeError, match="`domain` must be a Domain; got NoneType"):
        domains.register(None)
