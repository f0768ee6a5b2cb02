"""JSON lines: rows as others write them, and errors that name the line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper.errors import AttemperError, FileError, InputError
from attemper.io import open_scores, reading


def lines(folder, *rows, name="a.jsonl"):
    path = folder / name
    path.write_bytes("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows).encode())
    return path


GOOD = {"label": 0, "logits": [1.0, 2.0]}


def test_as_others_write_it(tmp_path):
    path = lines(
        tmp_path,
        '\ufeff{"question": "a?", "answer": "B", "A": 1, "B": 2.5, "more": {"x": [1]}}\r\n',
        "\n",
        '{"B": -Infinity, "A": 0.5, "answer": "A", "question": "b?", "new": 1}',  # no end of line, another order
        name="a.ndjson",
    )
    files = open_scores(path, labels_column="answer", columns=["A", "B"])
    scores = files.load()
    np.testing.assert_array_equal(scores.values, [[1, 2.5], [0.5, -np.inf]])
    np.testing.assert_array_equal(scores.labels, [1, 0])
    assert scores.classes == ("A", "B")


def test_labels_of_any_kind(tmp_path):
    for given_labels in ([0, 1], [False, True], [0.0, 1.0], ["0", "1"]):
        path = lines(tmp_path, *({"label": y, "logits": [0.5, 1.0]} for y in given_labels))
        np.testing.assert_array_equal(open_scores(path).load().labels, [0, 1])
    path = lines(tmp_path, *({"label": y, "p": [0.25, 0.75], "w": 2} for y in ("no", "yes")))
    scores = open_scores(path, input="probs", logits_key="p", classes=["no", "yes"], weights_key="w").load()
    np.testing.assert_array_equal(scores.labels, [0, 1])
    np.testing.assert_array_equal(scores.weights, [2, 2])
    tokens = open_scores(lines(tmp_path, {"label": 5, "logits": list(range(8))}), columns=[7, 5], labels_are="tokens")
    np.testing.assert_array_equal(tokens.load().values, [[7, 5]])
    np.testing.assert_array_equal(tokens.load().labels, [1])


@pytest.mark.parametrize(
    "second, match",
    [
        ("{]\n", r"a\.jsonl: line 2 is not JSON"),
        ("[1, 2]\n", "line 2 is a list; expected an object for each row"),
        ('{"label": 0, "label": 1, "logits": [1, 2]}\n', "line 2: the key 'label' stands there twice"),
        ({"label": 0, "logits": [1.0]}, "line 2: 'logits' holds 1 numbers, but in the first row there are 2"),
        ({"label": 0, "logits": 3}, "line 2: 'logits' holds a number"),
        ({"label": 0, "logits": [1.0, None]}, "line 2: expected numbers, got null"),
        ({"label": 0, "logits": [1.0, True]}, "line 2: expected numbers, got a boolean, true"),
        ({"label": 0, "logits": [1.0, "2"]}, 'line 2: expected numbers, got text, "2"'),
        ({"label": 0, "logits": [1.0, 10**400]}, "line 2 has a number that is too large"),
        ({"label": 0}, "line 2 has no 'logits', which the first row has"),
        ({"logits": [1.0, 2.0]}, "line 2 has no 'label'"),
        ({"label": None, "logits": [1.0, 2.0]}, "line 2: 'label' is null; expected a label"),
        ({"label": [0], "logits": [1.0, 2.0]}, "line 2: 'label' is a list"),
        ({"label": 10**30, "logits": [1.0, 2.0]}, "row 1 has label"),
        ({"label": 0, "logits": [1.0, float("nan")]}, "row 1, column 1 is NaN"),
    ],
)
def test_errors_name_the_line(tmp_path, second, match):
    with pytest.raises(AttemperError):
        open_scores(lines(tmp_path, GOOD, second)).load()


def test_what_is_no_table(tmp_path):
    with pytest.raises(FileError):
        open_scores(lines(tmp_path, "\n\n"))
    with pytest.raises(FileError):
        (tmp_path / "a.jsonl").write_bytes(b'{"label": "\xff"}\n')
        open_scores(tmp_path / "a.jsonl")
    row = {"question": "a?", "A": 1.0, "B": 2.0, "label": 0}
    with pytest.raises(InputError):
        open_scores(lines(tmp_path, row))
    with pytest.raises(InputError):
        open_scores(lines(tmp_path, row), columns=["A", "z"])
    (tmp_path / "a.jsonl").write_text('{"A": ' + "[" * 10**5 + "\n")
    with pytest.raises(FileError):
        open_scores(tmp_path / "a.jsonl")


@given(
    st.lists(
        st.tuples(st.floats(-8, 8).map(lambda v: v if abs(v) > 1e-20 else 0.0), st.floats(0, 8), st.integers(0, 1)),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_blocks_make_the_whole(tmp_path_factory, rows, size):
    folder = tmp_path_factory.mktemp("jsonl")
    path = lines(folder, *({"a": a, "b": b + 1.5, "label": y} for a, b, y in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK_BYTES", 16 * size)
        files = open_scores(path, columns=["b", "a"])
        assert max(map(len, files)) <= size
        scores = files.load()
    np.testing.assert_array_equal(scores.values, [[b + 1.5, a] for a, b, _ in rows])
    np.testing.assert_array_equal(scores.labels, [y for *_, y in rows])
