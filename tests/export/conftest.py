"""Checks of exported models without the start of a process each, which would take most of the time of these tests."""

from __future__ import annotations

import pytest


def run_models_here(patch):
    from attemper.onnx import child, verify

    patch.setattr(verify, "start_child", lambda folder, job: child.run(folder, job) or 0)


@pytest.fixture(scope="module")
def in_this_process():
    """For a whole file: test_onnx_running.py runs models as users do, in a process with limits."""
    with pytest.MonkeyPatch.context() as patch:
        run_models_here(patch)
        yield


@pytest.fixture
def once_in_this_process(monkeypatch):
    """For one test."""
    run_models_here(monkeypatch)
