"""What is asked wrongly, or too much, gets a 4xx and a sentence, and the server goes on."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pandas as pd
import pytest
import torch

from anyorder.errors import ConfigError, QueryError
from anyorder.serve.app import create_app
from anyorder.serve.batching import Batcher
from anyorder.serve.limits import Limits, Metrics, RefusalError
from anyorder.serve.server import PromptProtocol, check_token
from anyorder.tables.model import TableModel
from tests.serve.conftest import PATIENCE, client, serving

JSON = {"Content-Type": "application/json"}


def conditionals(given, **more):
    return "/v1/conditionals", json.dumps({"given": given, **more})


BAD_REQUESTS = {
    "no JSON": (("/v1/conditionals", '{"given"'), 400, "must be JSON"),
    "nothing": (("/v1/log_prob", ""), 422, "is needed"),
    "a list": (("/v1/conditionals", "[]"), 422, "valid dictionary"),
    "no number": (("/v1/conditionals", '{"given": {"age": NaN}}'), 422, "finite number"),
    "infinite": (("/v1/conditionals", '{"given": {"age": 1e999}}'), 422, "finite number"),
    "deep": (("/v1/conditionals", "[" * 100_000), 400, ""),
    "digits": (("/v1/conditionals", f'{{"given": {{"age": {"9" * 5000}}}}}'), 400, ""),
    "half a letter": (("/v1/conditionals", '{"given": {"job": "\\ud800"}}'), 422, ""),
    "half a name": (("/v1/conditionals", '{"given": {"\\ud800": 1}}'), 422, ""),
    "column": (conditionals({"agee": 41}), 422, 'Did you mean "age"?'),
    "traversal": (conditionals({"../../etc/passwd": 1}), 422, "must name columns"),
    "level": (conditionals({"job": "pilot"}), 422, "pilot"),
    "text": (conditionals({"age": "forty"}), 422, "forty"),
    "date": (conditionals({"born": "yesterday-ish"}), 422, "born"),
    "descending": (conditionals({"age": {"low": 9, "high": 1}}), 422, "must ascend"),
    "interval of levels": (conditionals({"job": {"low": "a"}}), 422, "no interval"),
    "closed interval of levels": (
        conditionals({"job": {"low": "clerk", "high": "nurse"}}),
        422,
        '"job" is a category: give a list of its levels, no interval',
    ),
    "list of numbers": (conditionals({"age": [1, 2]}), 422, "give a value, or an interval"),
    "no levels": (conditionals({"job": []}), 422, "must hold levels"),
    "both": (conditionals({"age": 41}, columns=["age"]), 422, "both queried and given"),
    "asked": (conditionals({}, columns=["agee"]), 422, "must name columns"),
    "second of two": (
        ("/v1/conditionals/batch", '{"questions": [{}, {"given": {"agee": 1}}]}'),
        422,
        "Question 1: `given` must name columns",
    ),
    "field": (("/v1/conditionals", '{"givn": {}}'), 422, "is no field of this request"),
    "ends": (conditionals({"age": {"lo": 1}}), 422, "an interval such as"),
    "draws": (("/v1/sample", '{"n": 1000000}'), 413, "may hold 1,000 samples"),
    "no draws": (("/v1/sample", '{"n": 0}'), 422, "`n`"),
    "true draws": (("/v1/sample", '{"n": true}'), 422, "`n`"),
    "seed": (("/v1/sample", '{"seed": -1}'), 422, "`seed`"),
    "rows": (("/v1/outliers", json.dumps({"rows": [{}] * 1001})), 413, "may hold 1,000 rows"),
    "cells": (
        ("/v1/impute", json.dumps({"rows": [{}] * 500, "draws": 500})),
        413,
        "Rows times samples",
    ),
    "means": (("/v1/impute", '{"rows": [{}], "draws": 2, "how": "mean"}'), 422, "one mean only"),
    "gap": (("/v1/log_prob", '{"rows": [{"job": null}], "query": ["job"]}'), 422, "no value"),
    "target": (("/v1/information_gain", '{"target": "job", "given": {"job": "clerk"}}'), 422, ""),
    "gain of ranges": (
        ("/v1/information_gain", '{"target": "job", "given": {"age": {"low": 1}}}'),
        422,
        "no intervals",
    ),
    "large": (("/v1/conditionals", " " * 2_000_001), 413, "2,000,000 bytes"),
    "pickle": (("/v1/conditionals", "gASVBAAAAAAAAABLAS4="), 400, "must be JSON"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests_get_a_status_and_a_sentence(table, name):
    (path, body), status, sentence = BAD_REQUESTS[name]
    answer = table.post(path, content=body, headers=JSON)
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["detail"]
    assert table.get("/health").json() == {"status": "ok"}


def test_no_path_of_a_request_is_opened(table):
    for path in ("/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/v1/../app.py"):
        assert table.get(path).status_code == 404
    assert table.get("/v1/conditionals").json()["detail"] == "This address takes another method."


def test_other_names_of_the_machine_are_refused(table):
    answer = table.get("/v1/model", headers={"Host": "rebound.example"})
    assert answer.status_code == 400
    assert 'not as "rebound.example"' in answer.json()["detail"]
    assert table.get("/v1/model", headers={"Host": "LOCALHOST:80"}).status_code == 200


def test_a_body_without_its_type_is_told_which_header_it_lacks(table):
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl -d says
    for headers in (form, {}):
        answer = table.post("/v1/conditionals", content='{"given": {}}', headers=headers)
        assert answer.status_code == 422
        assert "header `Content-Type: application/json`" in answer.json()["detail"]


def test_long_levels_can_be_given():
    levels = ["a" * 5000, "b" * 5000]
    frame = pd.DataFrame({"text": levels * 20, "n": range(40)})
    model = TableModel(layers=1, width=16, heads=2, max_steps=2).fit(frame)
    with serving(create_app(model)) as (address, _), client(address) as asking:
        answer = asking.post("/v1/conditionals", json={"given": {"text": levels[0]}})
    assert answer.status_code == 200


BAD_TEXTS = {
    "long": ("/v1/infill", {"text": "a_" * 4000}, "must have 1 to"),
    "no hole": ("/v1/infill", {"text": "abc"}, "must have a hole"),
    "capitals": ("/v1/positions", {"text": "The"}, "lower case"),
    "empty": ("/v1/positions", {"text": ""}, "`text`"),
    "cold": ("/v1/infill", {"text": "a_", "temperature": 0}, "temperature"),
    "greedy": ("/v1/infill", {"text": "a_", "greedy": True}, "one greedy fill only"),
    "given": ("/v1/log_prob", {"texts": ["ab"], "given": ["c_"]}, "`text` with holes"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_bad_texts_get_a_sentence(text, name):
    path, body, sentence = BAD_TEXTS[name]
    answer = text.post(path, json=body)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


BAD_IMAGES = {
    "short": ({"image": [0], "hole": [True] * 24}, "4 x 6 x 1 = 24"),
    "levels": ({"image": [999] * 24, "hole": [True] * 24}, "codes of levels"),
    "negative": ({"image": [-1] * 24, "hole": [True] * 24}, "`image.0`"),
    "hole": ({"image": [0] * 24, "hole": [True]}, "4 x 6 = 24 booleans"),
    "no hole": ({"image": [0] * 24, "hole": [False] * 24}, "a pixel or more"),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_images_get_a_sentence(image, name):
    body, sentence = BAD_IMAGES[name]
    answer = image.post("/v1/inpaint", json=body)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


def test_a_token_is_wanted_for_all_but_the_empty_page(table_model):
    app = create_app(table_model, token="a-token-of-some-length")
    with serving(app) as (address, _), client(address) as asking:
        for path in ("/v1/model", "/metrics", "/openapi.json", "/v1/nothing"):
            answer = asking.get(path)
            assert answer.status_code == 401
            assert "Authorization: Bearer" in answer.json()["detail"]
        for wrong in ("Bearer a-token-of-some-lengtH", "Basic a-token-of-some-length", "Bearer é"):
            given = {"Authorization": wrong.encode()}
            assert asking.get("/v1/model", headers=given).status_code == 401
        right = {"Authorization": "Bearer a-token-of-some-length"}
        assert asking.get("/v1/model", headers=right).status_code == 200
        assert asking.get("/").status_code == asking.get("/health").status_code == 200


def test_other_addresses_need_a_token_that_cannot_be_guessed():
    check_token("127.0.0.1", None)
    check_token("::1", None)
    check_token("0.0.0.0", "a-token-of-some-length")
    with pytest.raises(ConfigError, match="others can reach the server"):
        check_token("0.0.0.0", None)
    with pytest.raises(ConfigError, match="16 characters or more"):
        check_token("127.0.0.1", "short")


def test_a_client_that_dawdles_is_sent_away_and_others_are_served(table_model):
    app = create_app(table_model, limits=Limits(seconds=0.3))
    with serving(app) as (address, _), client(address) as asking:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port), timeout=PATIENCE) as slow:
            head = (
                "POST /v1/conditionals HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
            slow.sendall(head.encode())
            assert asking.get("/health").status_code == 200
            said = b"".join(iter(lambda: slow.recv(65_536), b"")).decode()
        assert said.startswith("HTTP/1.1 408")
        assert "did not arrive within 0.3 seconds" in said


def test_a_request_that_never_gets_to_its_body_is_closed(table_address, monkeypatch):
    monkeypatch.setattr(PromptProtocol, "seconds", 0.3)
    place = urlsplit(table_address)
    with socket.create_connection((place.hostname, place.port), timeout=PATIENCE) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        said = b"".join(iter(lambda: slow.recv(65_536), b"")).decode()
    assert said.startswith("HTTP/1.1 408")
    with socket.create_connection((place.hostname, place.port), timeout=PATIENCE) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(65_536).startswith(b"HTTP/1.1 200")
        slow.sendall(b"GET /health HTTP/1.1\r\n")  # the second one dawdles
        said = b"".join(iter(lambda: slow.recv(65_536), b"")).decode()
    assert "HTTP/1.1 408" in said
    assert "did not arrive within 0.3 seconds" in said


def test_an_answer_that_takes_too_long_is_given_up(table_model):
    app = create_app(table_model, limits=Limits(seconds=0.01))
    with serving(app) as (address, _), client(address) as asking:
        answer = asking.post("/v1/impute", json={"rows": [{}] * 500})
        assert answer.status_code == 408
        assert "took longer than 0.01 seconds" in answer.json()["detail"]
        assert asking.get("/health").status_code == 200


def test_concurrent_questions_share_a_pass_and_have_their_own_answers(table_model):
    app = create_app(table_model)
    questions = [{"given": {"age": 18 + i % 60}, "columns": ["income"]} for i in range(60)]
    with serving(app) as (address, _), client(address) as asking:
        alone = [asking.post("/v1/conditionals", json=question).json() for question in questions]
        with ThreadPoolExecutor(30) as crowd:
            together = list(
                crowd.map(
                    lambda question: httpx.post(
                        f"{address}/v1/conditionals", json=question, timeout=PATIENCE
                    ).json(),
                    questions,
                )
            )
        metrics = asking.get("/metrics").text
    for one, other in zip(alone, together, strict=True):
        one, other = (answer["columns"]["income"] for answer in (one, other))
        places = (found["positions"].values() for found in (one, other))
        for place, same in zip(*places, strict=True):
            assert abs(place - same) < 1e-3 * abs(place)
    batches = app.state.metrics.batches
    assert batches.total == 120
    assert batches.count < 120, "some of them came together"
    assert 'anyorder_requests_total{path="/v1/conditionals",status="200"} 120' in metrics


def test_what_was_accepted_is_answered_before_the_server_ends(table_model):
    started, answers = threading.Event(), []
    app = create_app(table_model)

    def ask(address):
        with client(address) as asking:
            started.set()
            answers.append(asking.post("/v1/impute", json={"rows": [{}] * 300}))

    with serving(app) as (address, server):
        asking = threading.Thread(target=ask, args=(address,))
        asking.start()
        assert started.wait(PATIENCE)
        while not app.state.metrics.batches.count and asking.is_alive():
            started.wait(0.001)  # until the question has reached the model
        server.should_exit = True
        asking.join(PATIENCE)
    assert answers[0].status_code == 200
    assert len(answers[0].json()["draws"][0]) == 300
    with pytest.raises(httpx.ConnectError), client(address) as late:
        late.get("/health")


def test_a_line_that_is_too_long_is_not_joined():
    async def crowd():
        batcher = Batcher(waiting=2, metrics=Metrics())
        asking = [asyncio.create_task(batcher.ask(sorted_items, item)) for item in range(3)]
        found = await asyncio.gather(*asking, return_exceptions=True)
        await batcher.close()
        return found

    *good, refused = asyncio.run(crowd())
    assert good == [0, 10]
    assert isinstance(refused, RefusalError)
    assert refused.status == 429


def sorted_items(items):
    return [10 * item for item in items]


def test_one_bad_question_does_not_spoil_a_batch():
    def picky(items):
        if 1 in items:
            raise QueryError("one is bad")
        return items

    async def crowd():
        batcher = Batcher(waiting=9, metrics=Metrics())
        asking = [asyncio.create_task(batcher.ask(picky, item)) for item in range(3)]
        found = await asyncio.gather(*asking, return_exceptions=True)
        await batcher.close()
        return found

    good, bad, also = asyncio.run(crowd())
    assert (good, also) == (0, 2)
    assert str(bad) == "one is bad"


def test_work_beyond_the_limit_is_refused_before_it_begins(text, image):
    answer = text.post("/v1/infill/batch", json={"texts": ["_" * 128] * 1000, "n": 10})
    assert answer.status_code == 413
    assert "may sample 100,000 characters" in answer.json()["detail"]
    assert "asks for 1,280,000" in answer.json()["detail"]
    few = Limits(values=10)
    with pytest.raises(RefusalError, match="may sample 10 values of pixels"):
        few.check_values(11, "values of pixels")
    assert image.get("/v1/model").json()["limits"]["values"] == 100_000


def test_long_requests_are_answered_in_parts(text, image, monkeypatch):
    monkeypatch.setattr("anyorder.text.routes.VALUES_AT_ONCE", 4)
    monkeypatch.setattr("anyorder.images.routes.VALUES_AT_ONCE", 4)
    texts = ["a__", "b__", "c_", "d_"]
    many = text.post("/v1/infill/batch", json={"texts": texts, "n": 3, "seed": 2**63 - 1}).json()
    assert [len(fills) for fills in many["fills"]] == [3] * 4
    assert [fills[0][0] for fills in many["fills"]] == ["a", "b", "c", "d"]
    assert len(text.post("/v1/infill", json={"text": "th__", "n": 7}).json()["fills"]) == 7
    hole = {"image": [0] * 24, "hole": [True] * 3 + [False] * 21, "n": 4, "seed": 1}
    assert len(image.post("/v1/inpaint", json=hole).json()["images"]) == 4
    wrong = text.post("/v1/infill/batch", json={"texts": [*texts, "full"]}).json()["detail"]
    assert "(text 4)" in wrong


def test_a_question_whose_asker_has_gone_is_computed_no_further():
    step, passes, begun = torch.nn.Identity(), [], threading.Event()

    def endless(items):
        while len(passes) < 1_000_000:
            step(torch.zeros(1))
            passes.append(1)
            begun.set()
        return items

    async def ask():
        batcher = Batcher(waiting=9, metrics=Metrics(), step=step)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await batcher.ask(endless, 1)
        after = await batcher.ask(sorted_items, 2)
        await batcher.close()
        return after

    assert asyncio.run(ask()) == 20
    assert begun.is_set()
    assert len(passes) < 1_000_000


SLOW_SERVER = """
import threading, time
from fastapi import FastAPI
from anyorder.serve.server import Server, server_config

threading.Thread(target=time.sleep, args=(600,)).start()  # as a pass that takes long
app = FastAPI()
server = Server(server_config(app), lambda port: print("ready", flush=True))
server.shutdown = lambda sockets=None: __import__("asyncio").sleep(600)
server.run()
"""


def test_a_second_interrupt_ends_at_once():
    command = [sys.executable, "-c", SLOW_SERVER]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        assert process.returncode == 130
        assert process.stderr.read() == ""
