"""Pickles of arrays are read, and nothing in a pickle is ever run."""

import builtins
import os
import pickle
import struct

import numpy as np
import pytest

from attemper import FileError
from experiments.zoo.data.pickles import read_pickled_dict

ARRAY = np.arange(12, dtype=np.uint8).reshape(3, 4)


def text(content):
    """A string as Python 2 wrote it."""
    return b"T" + struct.pack("<I", len(content)) + content


def python2_pickle(array):
    """What Python 2 and the NumPy of that time made of {"data": array, "labels": [7, 8, 9]}: the form of CIFAR."""
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = b"".join(b"K" + bytes([n]) for n in array.shape) + b"\x86"
    state = b"(K\x01" + shape + dtype + b"\x89" + text(array.tobytes()) + b"tb"
    return b"\x80\x02}(" + text(b"data") + made + state + text(b"labels") + b"](K\x07K\x08K\x09eu."


def test_the_pickles_of_python_2(tmp_path):
    path = tmp_path / "data_batch_1"
    high = np.arange(244, 256, dtype=np.uint8).reshape(3, 4)  # bytes that are no ASCII
    path.write_bytes(python2_pickle(high))
    content = read_pickled_dict(path)
    assert np.array_equal(content["data"], high)
    assert content["data"].dtype == np.uint8
    assert content["labels"] == [7, 8, 9]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("array", [ARRAY, ARRAY.T, ARRAY.astype(">i4"), ARRAY.astype(np.int64)], ids=str)
def test_the_pickles_of_today(tmp_path, protocol, array):
    path = tmp_path / "p"
    path.write_bytes(pickle.dumps({b"data": array, "name": ["a"], b"n": 3}, protocol=protocol))
    content = read_pickled_dict(path)
    assert np.array_equal(content["data"], array)
    assert content["name"] == ["a"]
    assert content["n"] == 3


class Evil:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_nothing_is_run(tmp_path, protocol):
    path, trace = tmp_path / "data_batch_1", tmp_path / "trace"
    evils = [
        Evil(os.system, f"touch {trace}"),
        Evil(builtins.eval, f"open({str(trace)!r}, 'w')"),
        Evil(builtins.getattr, [], "append"),
        Evil(np.load, str(trace)),
        Evil(np.memmap, str(trace), "u1", "w+", 0, (4,)),
    ]
    for evil in evils:
        path.write_bytes(pickle.dumps({"data": ARRAY, "labels": evil}, protocol=protocol))
        with pytest.raises(FileError):
            read_pickled_dict(path)
        assert not trace.exists()


def test_arrays_that_are_not_plain_are_refused(tmp_path):
    path = tmp_path / "p"
    for array, _message in [
        (np.array([ARRAY, None], dtype=object), "expected integers"),
        (ARRAY.astype(float), "an array of type 'f8'"),
        (np.zeros(2, "i4,i4"), "an array of type 'V8'"),
    ]:
        path.write_bytes(pickle.dumps({"data": array}, protocol=2))
        with pytest.raises(FileError):
            read_pickled_dict(path)
    path.write_bytes(python2_pickle(ARRAY).replace(b"K\x03K\x04\x86", b"K\x04K\x04\x86"))
    with pytest.raises(FileError):
        read_pickled_dict(path)


def test_other_contents_are_refused(tmp_path):
    path = tmp_path / "p"
    for content, _message in [
        (pickle.dumps([1, 2]), "holds a list; expected a dict"),
        (python2_pickle(ARRAY)[:-9], "cannot be read as a pickled dict of arrays"),
        (b"", "cannot be read"),
    ]:
        path.write_bytes(content)
        with pytest.raises(FileError):
            read_pickled_dict(path)
