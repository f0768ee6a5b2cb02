"""Fits use one thread of BLAS, and leave as many as there were."""

import threading

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from attemper import BayesianTemperatureScaling, Sketch, TemperatureScaling
from attemper.kernels.blas import one_blas_thread

from data import draw


def blas_threads():
    return [library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"]


@pytest.fixture
def two():
    """Let BLAS have two threads, also where there is one core."""
    with threadpool_limits(2, user_api="blas"):
        if set(blas_threads()) != {2}:
            pytest.skip(f"this BLAS has no threads to limit: {blas_threads()}")
        yield


@pytest.fixture
def inside(monkeypatch):
    """Note the threads of BLAS at a place that all these fits come by."""
    seen = []
    real = Sketch.mean_nll

    def noted(*args):
        seen.extend(blas_threads())
        return real(*args)

    monkeypatch.setattr(Sketch, "mean_nll", noted)
    return seen


FITS = {
    "fit": lambda h, y: BayesianTemperatureScaling(labels="noisy").fit(h, y),  # with another fit inside
    "fit_sketch": lambda h, y: TemperatureScaling().fit_sketch(Sketch.of(h, y)),
    "partial_fit": lambda h, y: TemperatureScaling().partial_fit(h, y),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_has_one_thread_and_gives_the_others_back(name, two, inside):
    FITS[name](*draw(200, 3))
    assert set(inside) == {1}
    assert set(blas_threads()) == {2}


@pytest.fixture
def two_for_all():
    """Let BLAS have two threads; threads that end leave the limit to others, which `two` keeps in this thread."""

    def limit(count):
        thread = threading.Thread(target=threadpool_limits, args=(count, "blas"))
        thread.start()
        thread.join()

    before = blas_threads()[0]
    limit(2)
    yield
    limit(before)


def test_fits_at_the_same_time_leave_as_many_as_there_were(two_for_all):
    assert set(blas_threads()) == {2}
    begun, go_on = threading.Event(), threading.Event()

    def first():
        with one_blas_thread():
            begun.set()
            assert go_on.wait(600)

    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    assert begun.wait(600)
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {1}  # the first still needs it
    with one_blas_thread():  # begins before the first is over, and ends after it
        go_on.set()
        thread.join()
    assert set(blas_threads()) == {2}
