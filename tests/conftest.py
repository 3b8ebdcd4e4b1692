import pytest
import torch

from anyorder import domains


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20221128)


@pytest.fixture(autouse=True)
def only_known_domains(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(domains, "_registered", {})
