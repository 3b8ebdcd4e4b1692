"""A server on loopback for the tests of the API and of the page."""

import threading
from contextlib import contextmanager

import httpx
import numpy as np
import pandas as pd
import pytest

from anyorder.images.data import from_array
from anyorder.images.model import ImageModel
from anyorder.serve.app import create_app
from anyorder.serve.server import Server, server_config
from anyorder.tables.model import TableModel
from anyorder.text.model import TextModel
from anyorder.training.settings import TrainingSettings

PATIENCE = 60
"""Seconds after which a test gives up; nothing is expected to take as long."""


def people(rows=300, seed=0):
    """Age, income that grows with it, hours with spikes, a job that follows income, a birthday."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, rows)
    income = np.exp(9 + age / 40 + rng.normal(0, 0.3, rows)).round(2)
    hours = np.where(rng.random(rows) < 0.6, 40.0, rng.normal(30, 8, rows).round(3))
    job = np.where(income > np.median(income), "nurse", "clerk")
    born = pd.Timestamp("2026-01-01") - pd.to_timedelta(age * 365, unit="D")
    frame = pd.DataFrame({"age": age, "income": income, "hours": hours, "job": job, "born": born})
    frame["member"] = rng.random(rows) < 0.3
    return frame


@contextmanager
def serving(app):
    """The address of a server in a thread of its own, and the server."""
    listening, found = threading.Event(), {}

    def ready(port):
        found["port"] = port
        listening.set()

    server = Server(server_config(app), ready)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert listening.wait(PATIENCE)
    try:
        yield f"http://127.0.0.1:{found['port']}", server
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server ends when it is told to"


@pytest.fixture(scope="session")
def table_model():
    options = {"layers": 1, "width": 16, "heads": 2, "dropout": 0.0, "learning_rate": 1e-2}
    return TableModel(**options, max_steps=60).fit(people())


@pytest.fixture(scope="session")
def text_model():
    return TextModel.shipped()


@pytest.fixture(scope="session")
def image_model():
    pixels = np.random.default_rng(0).integers(0, 4, (40, 4, 6), dtype=np.uint8)
    settings = TrainingSettings(steps=2, batch=8, warmup=1)
    model = ImageModel(layers=1, width=16, heads=2, settings=settings)
    return model.fit(from_array(pixels))


@pytest.fixture(scope="session")
def table_address(table_model):
    with serving(create_app(table_model, name="people", run="runs/people")) as (address, _):
        yield address


@pytest.fixture(scope="session")
def text_address(text_model):
    with serving(create_app(text_model, name="shipped")) as (address, _):
        yield address


@pytest.fixture(scope="session")
def image_address(image_model):
    with serving(create_app(image_model, name="digits")) as (address, _):
        yield address


def client(address, **options):
    return httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False, **options)


@pytest.fixture
def table(table_address):
    with client(table_address) as asking:
        yield asking


@pytest.fixture
def text(text_address):
    with client(text_address) as asking:
        yield asking


@pytest.fixture
def image(image_address):
    with client(image_address) as asking:
        yield asking
