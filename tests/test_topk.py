"""Top-k log-probabilities in every form that servers give them; the tail against mpmath, and against whole logits."""

from __future__ import annotations

import json

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper import AttemperWarning, InputError, InputTypeError, Scores, TemperatureScaling
from attemper.tokens import read_topk, token_scores, topk_option_scores, topk_scores
from attemper.tokens.topk import log_of_rest

V = 30


def logits_and_tokens(n=12, seed=0):
    rng = np.random.default_rng(seed)
    h = 3 * rng.normal(size=(n, V))
    return h, np.array([rng.choice(V, p=np.exp(r / 1.5) / np.exp(r / 1.5).sum()) for r in h])


def log_softmax(h):
    z = h - h.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def oracle(h, y, k):
    """Slow and obvious: sort each row, sum what is left, look for the label."""
    values, labels = [], []
    for row, label in zip(log_softmax(h).tolist(), y):
        order = sorted(range(len(row)), key=lambda j: -row[j])
        rest = mpmath.fsum(mpmath.exp(row[j]) for j in order[k:])
        values.append([row[j] for j in order[:k]] + [float(mpmath.log(rest))])
        labels.append(order.index(label) if label in order[:k] else k)
    return np.array(values), labels


def dicts(h, k, key=int):
    """Positions as plain dicts from token to log-probability, in no order."""
    found = []
    for row in log_softmax(h):
        order = np.argsort(-row)[:k]
        found.append({key(j): float(row[j]) for j in sorted(order.tolist())})
    return found


def text(j):
    return f" t{j}"


def chat(position):
    top = [{"token": token, "logprob": p, "bytes": list(token.encode())} for token, p in position.items()]
    return {"choices": [{"index": 0, "logprobs": {"content": [{**top[0], "top_logprobs": top}], "refusal": None}}]}


def completion(positions):
    return {"choices": [{"text": "…", "logprobs": {"tokens": ["…"], "top_logprobs": positions}}]}


def same(scores, values, labels, atol=1e-9):
    np.testing.assert_allclose(scores.values, values, atol=atol)
    np.testing.assert_array_equal(scores.labels, labels)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_every_form_gives_the_oracle(tmp_path, k):
    h, y = logits_and_tokens()
    values, labels = oracle(h, y, k)
    texts, ids = [text(j) for j in y], y
    named = dicts(h, k, text)
    forms = {
        "dicts": (dicts(h, k), ids),
        "chat": ([chat(position) for position in named], texts),
        "entries": (
            [chat(position)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] for position in named],
            texts,
        ),
        "completion": (completion(named), texts),
        "completions": ([completion([position]) for position in named], texts),
    }
    for name, (responses, truth) in forms.items():
        scores = topk_scores(responses, truth)
        assert scores.columns == (*(f"rank {r}" for r in range(1, k + 1)), "tail"), name
        same(scores, values, labels)
        assert not isinstance(topk_scores(responses).columns, type(None))
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(chat(position)) + "\n" for position in named))
    same(topk_scores(read_topk(path), texts), values, labels)
    batch = [{"custom_id": f"q{i}", "response": {"status_code": 200, "body": chat(p)}} for i, p in enumerate(named)]
    turned = np.random.default_rng(1).permutation(len(batch))
    path.write_text("".join(json.dumps(batch[i]) + "\n" for i in turned))
    by_id = topk_scores(read_topk(path), {f"q{i}": token for i, token in enumerate(texts)})
    same(by_id, values[turned], np.array(labels)[turned])


@pytest.mark.parametrize("array", [np.asarray, torch.tensor, lambda h: Scores.from_logits(h, logits_and_tokens()[1])])
def test_whole_logits(array):
    h, y = logits_and_tokens()
    given_logits = array(h)
    labels = {} if isinstance(given_logits, Scores) else {"labels": y}
    for k in (1, 5, 20):
        same(topk_scores(given_logits, k=k, **labels), *oracle(h, y, k), atol=1e-12)


def test_sequences_of_logits():
    h, y = logits_and_tokens()
    labels = y.reshape(3, 4).copy()
    labels[0, 1] = -100
    scores = topk_scores(h.reshape(3, 4, V), labels, k=5)
    expected = token_scores(h.reshape(3, 4, V), labels)
    same(scores, *oracle(h[expected.values.index], expected.labels, 5), atol=1e-12)
    assert len(topk_scores(h.reshape(3, 4, V), k=5)) == 12


@given(st.integers(2, 8), st.integers(1, 7), st.floats(0.1, 30), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_mass_is_one_and_ranks_descend(n, k, scale, seed):
    h = scale * np.random.default_rng(seed).normal(size=(n, 10))
    scores = topk_scores(dicts(h, k), h.argmax(axis=1), zeros_as=1e-12)
    assert (np.diff(scores.values[:, :k], axis=1) <= 0).all()
    np.testing.assert_allclose(np.exp(scores.values).sum(axis=1), 1, atol=1e-9)
    assert (scores.labels == 0).all()
    whole = topk_scores(h, h.argmax(axis=1), k=k)
    np.testing.assert_allclose(np.exp(scores.values), np.exp(whole.values), atol=1e-9)


@given(st.lists(st.floats(-40, -1e-12), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_what_is_left_against_mpmath(log_probs):
    row = sorted(log_probs, reverse=True)
    with mpmath.workdps(60):
        rest = 1 - mpmath.fsum(mpmath.exp(p) for p in row)
        found = float(log_of_rest(np.array([row]))[0])
        if rest <= 0:
            assert found < np.log(1e-14)
        else:
            # One rounding of each probability.
            assert abs(mpmath.exp(found) - rest) <= 1e-15 * len(row) + 1e-14 * rest


def test_positions_that_do_not_count():
    h, y = logits_and_tokens()
    responses = [None, *dicts(h, 4)]  # vLLM has nothing for the first token of a prompt
    weights = np.arange(1.0, 14)
    scores = topk_scores(responses, [int(y[0]), *y.tolist()], sample_weight=weights)
    same(scores, *oracle(h, y, 4))
    np.testing.assert_array_equal(scores.weights, weights[1:])
    labels = [None, -100, *y[1:].tolist()]
    same(topk_scores(responses, labels), *oracle(h[1:], y[1:], 4))
    same(topk_scores([responses[:5], responses[5:]], [labels[:5], labels[5:]]), *oracle(h[1:], y[1:], 4))


def test_without_a_tail_temperature_means_the_same():
    """Given that the label is among the k, the softmax of the k at T is that over all tokens at T."""
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(40_000, 12))
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
    whole = TemperatureScaling().fit(h, y).temperature_
    kept = TemperatureScaling().fit(topk_scores(h, y, k=4, tail="drop")).temperature_
    assert kept == pytest.approx(whole, rel=0.03)
    assert kept == pytest.approx(2, rel=0.03)
    dropped = topk_scores(dicts(h[:50], 4), y[:50], tail="drop")
    values, labels = oracle(h[:50], y[:50], 4)
    keep = np.array(labels) < 4
    same(dropped, values[keep, :4], np.array(labels)[keep])


def test_a_tail_of_zero_is_never_silent():
    sure = [{"a": 0.0, "b": -40.0}, {"a": -0.5, "b": -1.0}]
    with pytest.raises(InputError):
        topk_scores(sure, ["a", "b"])
    scores = topk_scores(sure, ["a", "b"], zeros_as=1e-6)
    assert scores.values[0, 2] == pytest.approx(np.log(1e-6))
    assert scores.values[1, 2] == pytest.approx(np.log(1 - np.exp(-0.5) - np.exp(-1.0)))
    # Where decoding allows few tokens, the others are impossible.
    guided = topk_scores([{"a": -0.1, "b": np.log(-np.expm1(-0.1)), "c": -np.inf}] * 2, ["a", "b"])
    np.testing.assert_array_equal(np.isneginf(guided.values), [[False, False, True, True]] * 2)
    openai = topk_scores([{"a": -0.1, "b": np.log(-np.expm1(-0.1)), "c": -9999.0}], ["a"])
    assert np.isneginf(openai.values[0, 2:]).all()


def test_labels_of_another_kind():
    with pytest.raises(InputTypeError):
        topk_scores([{"a": -0.7}], [3])
    with pytest.raises(InputTypeError):
        topk_scores([{5: -0.7}], ["a"])
    with pytest.warns(AttemperWarning):
        topk_scores([{" A": -0.7}, {" A": -0.2}], ["A", "A"])
    with pytest.raises(InputTypeError):
        topk_scores(3, [0])
    for wrong in ({"k": 0}, {"k": V}, {"tail": "x"}, {"zeros_as": 2}):
        with pytest.raises(InputError):
            topk_scores(logits_and_tokens()[0], logits_and_tokens()[1], **({"k": 3} | wrong))


# Answer options


def test_options_are_those_of_the_whole():
    h, y = logits_and_tokens(40)
    letters = [3, 7, 11]
    answers = h[:, letters].argmax(axis=1)
    scores = topk_option_scores(dicts(h, V), letters, answers)
    np.testing.assert_allclose(scores.values, log_softmax(h)[:, letters], atol=1e-12)
    whole = TemperatureScaling().fit(h[:, letters], (answers + (y > 20)) % 3).temperature_
    found = TemperatureScaling().fit(topk_option_scores(dicts(h, V), letters, (answers + (y > 20)) % 3)).temperature_
    assert found == pytest.approx(whole, rel=1e-6)
    json_ids = json.loads(json.dumps(dicts(h, V)))
    np.testing.assert_array_equal(topk_option_scores(json_ids, letters).values, scores.values)


def test_options_by_text_and_with_spaces():
    responses = [{"A": -0.5, " A": -2.0, "B": -3.0, "x": -4.0}, {" B": -0.4, "A": -1.5, "B": -3.5, "x": -4.0}]
    scores = topk_option_scores(responses, [["A", " A"], ["B", " B"]], ["A", "B"])
    expected = [[np.logaddexp(-0.5, -2.0), -3.0], [-1.5, np.logaddexp(-0.4, -3.5)]]
    np.testing.assert_allclose(scores.values, expected)
    assert scores.classes == ("A", "B")
    np.testing.assert_array_equal(scores.labels, [0, 1])
    fitted = TemperatureScaling().fit(topk_option_scores(responses * 3, [["A", " A"], ["B", " B"]], [0, 1, 0, 1, 1, 0]))
    assert fitted.predict(scores).tolist() == ["A", "B"]


def test_missing_options():
    responses = [{"A": -0.3, "x": -2.0, "y": -3.0}, {"A": -0.7, "B": -0.8, "x": -4.0}]
    with pytest.raises(InputError):
        topk_option_scores(responses, ["A", "B"], [0, 1])
    bound = topk_option_scores(responses, ["A", "B"], [0, 1], missing="bound").values[0, 1]
    tail = np.log(1 - np.exp([-0.3, -2.0, -3.0]).sum())
    assert bound == pytest.approx(min(-3.0, tail), abs=1e-3)
    assert topk_option_scores(responses, ["A", "B"], [0, 1], missing=-20.0).values[0, 1] == -20
    with pytest.raises(InputError):
        topk_option_scores(responses, ["C", "D"], [0, 1], missing="bound")
    for options in (["A"], ["A", "A"], [["A", "B"], "B"]):
        with pytest.raises(InputError):
            topk_option_scores(responses, options)
    for label in ("C", 2, True, 0.5):
        with pytest.raises(InputError):
            topk_option_scores(responses, ["A", "B"], [label, 1], missing="bound")
    with pytest.raises(InputError):
        topk_option_scores(responses, ["A", "B"], [0, 1], missing=3)


@given(st.integers(2, 29), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_bound_is_a_bound(k, seed):
    """What a missing option is given is never less than what it has."""
    h, _ = logits_and_tokens(6, seed)
    h[:, 0] += 40  # one option is always there
    options = [0, 5, 9]
    scores = topk_option_scores(dicts(h, k), options, missing="bound")
    true = log_softmax(h)[:, options]
    assert (scores.values >= true - 1e-9).all()


def test_a_small_tail_has_all_its_digits():
    for exponent in (3, 8, 12, 15):
        [found] = log_of_rest(np.array([[-(10.0**-exponent)]]))
        assert found == pytest.approx(float(mpmath.log(-mpmath.expm1(-(10.0**-exponent)))), rel=1e-14)
