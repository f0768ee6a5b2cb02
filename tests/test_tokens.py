"""Language models: tokens, answer options and the top k of responses become the same Scores as their arrays."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import attemper
from attemper import InputError, Scores, read, tokens
from conftest import draw

N, K = 300, 3
DATA = draw(N, K)
H, Y, P = DATA.h, DATA.y, DATA.p


def sums(scores):
    return np.concatenate([scores.backend.nll(beta) for beta in (0.3, 1.0)])


def test_tokens():
    data = draw(10, 7)
    logits, ids = data.h.reshape(2, 5, 7), data.y.reshape(2, 5)
    labels = np.where(np.arange(5) < 2, -100, ids)
    kept = sums(Scores.of(logits[:, 2:].reshape(-1, 7), ids[:, 2:].reshape(-1)))
    np.testing.assert_allclose(sums(tokens.token_scores(logits, labels)), kept, rtol=1e-12)
    np.testing.assert_allclose(sums(read(logits, labels, axis=-1, ignore_index=-100)), kept, rtol=1e-12)
    shifted = tokens.token_scores(torch.tensor(logits), input_ids=ids, mask=np.ones((2, 5)))
    np.testing.assert_array_equal(shifted.labels, ids[:, 1:].reshape(-1))
    options = tokens.option_scores(logits[:, -1], [4, 1], [0, 1])
    np.testing.assert_array_equal(options.values, logits[:, -1][:, [4, 1]])
    last = tokens.option_scores(torch.tensor(logits), [4, 1], [0, 1], positions=[4, 4])
    np.testing.assert_array_equal(last.values.numpy(), options.values)


def response(**tokens_):
    top = [{"token": token, "logprob": p, "bytes": None} for token, p in tokens_.items()]
    return {"id": "q", "choices": [{"logprobs": {"content": [{"token": "A", "logprob": -0.1, "top_logprobs": top}]}}]}


def test_responses_of_servers(folder):
    answers = [response(**{" A": -0.2, "B": -2.0}), response(**{"A": -1.0, " B": -0.7})]
    scores = tokens.option_scores(answers, ["A", "B"], ["A", "B"])
    np.testing.assert_array_equal(scores.values, [[-0.2, -2.0], [-1.0, -0.7]])
    assert scores.classes == ("A", "B")
    lines = [json.dumps({"custom_id": str(i), "response": {"body": a}}) for i, a in enumerate(answers)]
    (folder / "batch.jsonl").write_text("\n\n".join(lines))
    found = tokens.read_responses("batch.jsonl")
    np.testing.assert_array_equal(tokens.option_scores(found, ["A", "B"], {"0": "A", "1": 1}).labels, [0, 1])
    ranks = tokens.topk_scores(answers, [" A", "C"])
    np.testing.assert_array_equal(ranks.labels, [0, 2])
    np.testing.assert_allclose(np.exp(ranks.values).sum(axis=1), 1)
    with pytest.raises(InputError):
        tokens.option_scores(answers, ["A", "C"])
    assert np.isfinite(tokens.option_scores(answers, ["A", "C"], missing="bound").values).all()


def test_a_missing_option_has_at_most_what_the_others_leave():
    answer = response(A=np.log(0.9), B=np.log(0.09))  # 0.01 is left, less than the last of them has
    bound = tokens.option_scores([answer], ["A", "C"], missing="bound").values
    np.testing.assert_allclose(np.exp(bound), [[0.9, 0.01]], rtol=1e-3)
    answer = response(A=np.log(0.6), B=np.log(0.1))  # 0.3 is left, more than the last of them has
    bound = tokens.option_scores([answer], ["A", "C"], missing="bound").values
    np.testing.assert_allclose(np.exp(bound), [[0.6, 0.1]], rtol=1e-12)


def test_top_k_of_logits_has_the_exact_tail():
    scores = tokens.topk_scores(H, Y, k=2)
    np.testing.assert_allclose(np.exp(scores.values), -np.sort(-P, axis=1), rtol=1e-12)
    inside = scores.labels < 2
    dropped = tokens.topk_scores(H, Y, k=2, tail="drop", sample_weight=np.arange(N))
    np.testing.assert_array_equal(dropped.values, scores.values[inside, :2])
    np.testing.assert_array_equal(dropped.labels, scores.labels[inside])
    np.testing.assert_array_equal(dropped.w, np.flatnonzero(inside))


def test_spellings_and_options_that_are_missing():
    answers = [{"A": -1.0, "(A)": -2.0, "B": -0.7}, {"B": -0.1}]
    scores = tokens.option_scores(answers, [["A", "(A)"], ["B"]], ["(A)", "B"], missing=-9.0)
    np.testing.assert_array_equal(scores.values, [[np.logaddexp(-1, -2), -0.7], [-9.0, -0.1]])
    assert scores.classes == ("A", "B")
    np.testing.assert_array_equal(scores.labels, [0, 1])


def test_forms_of_responses():
    """Completions have a dict for each position; clients' objects have `model_dump`."""
    completion = {"choices": [{"logprobs": {"tokens": ["A", "B"], "top_logprobs": [{"A": -0.1}, {"B": -0.2}]}}]}
    chat = SimpleNamespace(model_dump=lambda: response(A=-0.1))
    assert [(p.tokens, p.log_probs) for p in tokens.responses_of([completion, chat])] == [
        (("A",), (-0.1,)), (("B",), (-0.2,)), (("A",), (-0.1,)),
    ]  # fmt: skip


def test_options_as_tokens_with_spaces_give_the_t_of_their_logits():
    answers = [response(**{" A": h[0], "B ": h[1], "C": h[2]}) for h in np.log(P)]
    letters = np.array(list("ABC"))[Y]
    scores = tokens.option_scores(answers, ["A", "B", "C"])
    assert attemper.fit(scores, letters, method="ts").temperature_ == pytest.approx(
        attemper.fit(H, Y, method="ts").temperature_, rel=1e-12
    )
    both = tokens.option_scores([{"A": -1.0, " A": -2.0, "B": -0.7}], ["A", "B"])
    assert both.values[0, 0] == pytest.approx(np.logaddexp(-1, -2))
    for token in ("A", "a", "(A)"):
        with pytest.raises(InputError) as error:
            tokens.option_scores([{token: -1.0, "B": -0.7}], [" A", "B"])
        assert repr(token) in str(error.value)


def test_ids_of_tokens_are_names_and_labels_are_places():
    scores = tokens.option_scores(H, [2, 0], [0, 1] * (N // 2))
    assert scores.classes == ("2", "0")
    np.testing.assert_array_equal(scores.labels, [0, 1] * (N // 2))


def test_padding_may_hold_anything():
    logits, labels = draw(8).h.reshape(2, 4, 5), np.array([[1, 2, -100, -100], [0, 4, 3, -100]])
    padded = np.where((labels == -100)[:, :, None], np.nan, logits)
    assert len(tokens.token_scores(padded, labels)) == 5
    np.testing.assert_array_equal(
        sums(read(padded, labels, axis=-1, ignore_index=-100)), sums(tokens.token_scores(logits, labels))
    )


@pytest.mark.parametrize("bad", [
    [{"choices": [{"logprobs": None}]}], [{"A": "high"}], [{"A": 0.9, "B": 0.1}], ["A"], [{"A": -0.1, "C": -3.0}],
    [{"custom_id": "1", "response": None, "error": {"message": "too many requests"}}],  # a batch's failed requests
    [{"custom_id": "1", "response": {"status_code": 400, "body": {"error": {"message": "no such model"}}}}],
    [{"response": {"body": "an outage"}}], [{"choices": [None]}], [{"choices": [{"logprobs": {"content": [3]}}]}],
    [{"choices": [{"logprobs": {"content": [{"top_logprobs": [{"token": "A"}]}]}}]}],
])  # fmt: skip
def test_responses_that_cannot_be_used(bad):
    with pytest.raises(InputError) as error:
        tokens.option_scores(bad, ["A", "B"])
    assert error.value.param in ("responses", "options")


def test_a_tail_of_nothing_needs_zeros_as():
    full = [{"yes": np.log(0.75), "no": np.log(0.25)}]
    with pytest.raises(InputError) as error:
        tokens.topk_scores(full, ["yes"])
    assert error.value.param == "zeros_as"
    assert tokens.topk_scores(full, ["yes"], zeros_as=1e-6).values[0, 2] == pytest.approx(np.log(1e-6))


def test_tokens_of_one_option_are_added_and_missing_labels_do_not_count():
    both = tokens.option_scores(H, [[0, 1], [2]])
    np.testing.assert_allclose(both.values[:, 0], np.logaddexp(H[:, 0], H[:, 1]))
    labels = [None, -100, *([1] * (N - 2))]
    np.testing.assert_array_equal(
        tokens.topk_scores(H, labels, k=2).values, tokens.topk_scores(H[2:], [1] * (N - 2), k=2).values
    )


ANSWERS = [{"A": -0.2, "B": -2.0}, {"A": -1.0, "B": -0.7}]


@pytest.mark.parametrize("found, expected", [
    (lambda: tokens.option_scores(H, ["A", "B"]), "options"),
    (lambda: tokens.option_scores(H, [0, K]), "options"),
    (lambda: tokens.option_scores(H, [0, -1]), "options"),
    (lambda: tokens.option_scores(H, [0, 1.5]), "options"),
    (lambda: tokens.option_scores(ANSWERS, ["A", []]), "options"),
    (lambda: tokens.option_scores(ANSWERS, ["A", "B"], ["A", 1.9]), "labels"),
    (lambda: tokens.option_scores(ANSWERS, ["A", "B"], ["A", "C"]), "labels"),
    (lambda: tokens.option_scores(H[:2], [0, 2], [2, 1]), "labels"),  # an id, and only a number
    (lambda: tokens.option_scores(ANSWERS, ["A", "B"], ["B", None]).labels, [1]),
    (lambda: tokens.option_scores(ANSWERS, ["A", "B"], [None, 1.0], sample_weight=[2, 3]).w, [3]),
    (lambda: tokens.option_scores(H[:4], [2, 0], [0, 2, np.nan, 2]).labels, [1, 0, 0]),
    (lambda: tokens.option_scores(H[:2], [[2, 1], [0]], np.array([2, 0])).labels, [0, 1]),
    (lambda: tokens.topk_scores(ANSWERS, [None, "B"]).labels, [0]),
    (lambda: tokens.topk_scores(np.array([[0, -800.0, -900]]), [1], k=1, zeros_as=1e-6).values, [[0, np.log(1e-6)]]),
])  # fmt: skip
def test_options_and_labels_are_checked_once(found, expected):
    if isinstance(expected, str):
        with pytest.raises(InputError) as error:
            found()
        assert error.value.param == expected
    else:
        np.testing.assert_allclose(found(), expected)


@pytest.mark.parametrize("padding", ["left", "right"])
def test_no_token_is_compared_with_padding(padding):
    data, counts = draw(10, 7), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    counts = counts if padding == "right" else counts[:, ::-1]
    logits, ids = data.h.reshape(2, 5, 7), data.y.reshape(2, 5)
    found = tokens.token_scores(logits, input_ids=ids, mask=counts)
    rows = [(i, t) for i in range(2) for t in range(4) if counts[i, t] and counts[i, t + 1]]
    np.testing.assert_array_equal(found.labels, [ids[i, t + 1] for i, t in rows])
    np.testing.assert_array_equal(found.logits, [logits[i, t] for i, t in rows])


def test_what_is_never_the_next_token_has_a_probability_of_zero():
    [found] = tokens.responses_of([{"A": -0.1, "B": tokens.NEVER, "C": tokens.NEVER + 1}])
    assert found.log_probs == (-0.1, tokens.NEVER + 1, -np.inf)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
@pytest.mark.parametrize("positions", [[3, 2], [1], [-4, 0], [0.5, 1]])
def test_positions_lie_within_each_sequence(make, positions):
    with pytest.raises(InputError) as error:
        tokens.option_scores(make(np.arange(24.0).reshape(2, 3, 4)), [0, 1], [0, 1], positions=positions)
    assert error.value.param == "positions"


@pytest.mark.parametrize("weight", [[1, 2, 3], [1]])
def test_weights_of_ranks_are_one_for_each_position(weight):
    responses = [{"A": -0.2, "B": -3.0}, {"B": -0.7, "A": -1.2}]
    with pytest.raises(InputError) as error:
        tokens.topk_scores(responses, ["A", "B"], sample_weight=weight)
    assert error.value.param == "sample_weight"
    assert tokens.topk_scores(responses, ["A", "B"], sample_weight=2.0).total_weight == 4
    with pytest.raises(InputError) as error:
        tokens.topk_scores(np.zeros((2, 4)), [None, None], k=2)
    assert error.value.param == "labels"


def test_a_token_that_is_never_next_bounds_no_other():
    found = tokens.option_scores([{"A": -0.01, "B": -9999.0}], ["A", "C"], ["C"], missing="bound")
    np.testing.assert_allclose(found.values, [[-0.01, np.log1p(-np.exp(-0.01))]], atol=0.01)
