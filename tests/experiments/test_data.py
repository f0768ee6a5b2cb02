"""Every format in which data sets lie about is read, and what is wrong with one is said."""

import gzip
import io
import pickle
import struct
import zipfile

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from attemper import FileError, InputError
from experiments.zoo.data import load_dataset
from experiments.zoo.data.images import Dataset, ImageSet, hold_out
from experiments.zoo.data.skin import split_rows

rng = np.random.default_rng(7)


def images(n, *shape):
    return rng.integers(0, 256, (n, *shape), dtype=np.uint8)


def labels(n, n_classes=10):
    return np.arange(n) % n_classes


def together(data):
    """Training and validation images, which are one part in the files."""
    return np.concatenate([data.train.images, data.validation.images])


def same_rows(one, other):
    return sorted(map(bytes, one)) == sorted(map(bytes, other))


# ---------------------------------------------------------------------------------------------- npz


def write_npz(folder, name="mnist", **changes):
    arrays = {
        "x_train": images(30, 5, 4),
        "y_train": labels(30),
        "x_test": images(20, 5, 4),
        "y_test": labels(20)[:, None],
        **changes,
    }
    np.savez(folder / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return arrays


def test_npz(tmp_path):
    arrays = write_npz(tmp_path, "anything", class_names=np.array(list("abcdefghij")))
    data = load_dataset("anything", tmp_path)
    assert (len(data.train.labels), len(data.validation.labels), len(data.test.labels)) == (27, 3, 20)
    assert same_rows(together(data), arrays["x_train"][..., None])
    assert np.array_equal(data.test.images, arrays["x_test"][..., None])
    assert np.array_equal(data.test.labels, labels(20))
    assert data.class_names == list("abcdefghij")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"y_test": None}, "no 'y_test'; there are 'x_train'"),
        ({"x_train": np.ones((30, 5, 4), np.float32)}, "dtype float32; expected uint8"),
        ({"x_train": images(30, 20)}, r"shape \(30, 20\); expected N"),
        ({"x_train": images(30, 5, 4, 2)}, "1 or 3 channels"),
        ({"y_train": labels(29)}, r"labels of shape \(29,\) for 30 images"),
        ({"y_train": labels(30) * 0.5}, "labels of dtype float64"),
        ({"y_train": labels(30) - 1}, "row 0 is -1; expected 0 to 8"),
        ({"y_test": labels(20, 11)}, "test labels: row 10 is 10; expected 0 to 9"),
        ({"x_test": images(0, 5, 4), "y_test": labels(0)}, "there are no images"),
        ({"x_test": images(20, 5, 5)}, "test images are 5 × 5 × 1, training images 5 × 4 × 1"),
        ({"class_names": np.array(["a", "b"])}, "expected 0 to 1, for there are 2 classes"),
    ],
)
def test_what_is_wrong_with_an_npz_is_said(tmp_path, changes, message):
    write_npz(tmp_path, **changes)
    with pytest.raises((InputError, FileError)):
        load_dataset("mnist", tmp_path)


def test_an_npz_with_pickled_objects_is_refused(tmp_path):
    write_npz(tmp_path, y_train=np.array([print] * 30, dtype=object))
    with pytest.raises(FileError):
        load_dataset("mnist", tmp_path)


# ---------------------------------------------------------------------------------------------- idx


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(folder, packed):
    folder.mkdir(parents=True)
    arrays = {"train": (images(30, 28, 28), labels(30)), "t10k": (images(20, 28, 28), labels(20))}
    for part, (x, y) in arrays.items():
        for name, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
    return arrays


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name, where", [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_idx(tmp_path, name, where, packed):
    arrays = write_idx(tmp_path / where / "raw", packed)
    data = load_dataset(name, tmp_path)
    assert same_rows(together(data), arrays["train"][0][..., None])
    assert np.array_equal(data.test.images[..., 0], arrays["t10k"][0])
    assert np.array_equal(data.test.labels, arrays["t10k"][1])


def test_damaged_idx(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    write_idx(folder, packed=False)
    test_labels = folder / "t10k-labels-idx1-ubyte"
    whole = test_labels.read_bytes()
    for content, _message in [
        (whole[:-3], r"17 values, where shape \(20,\) asks for 20"),
        (b"\x89PNG" + whole, "begins with 89504e47; expected 00000801"),
        (b"", "cannot be read as an idx file"),
    ]:
        test_labels.write_bytes(content)
        with pytest.raises(FileError):
            load_dataset("mnist", tmp_path)
    test_labels.unlink()
    with pytest.raises(FileError):
        load_dataset("mnist", tmp_path)
    test_labels.with_name(test_labels.name + ".gz").write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(FileError):
        load_dataset("mnist", tmp_path)


# ---------------------------------------------------------------------------------------------- CIFAR


def write_pickle(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


def rows(pictures):
    return pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)


def test_cifar10(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    parts = [images(6, 32, 32, 3) for _ in range(6)]
    for name, part in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], parts, strict=True):
        write_pickle(folder / name, {b"data": rows(part), b"labels": list(range(6)), b"batch_label": b"some"})
    write_pickle(folder / "batches.meta", {"label_names": list("abcdef"), "num_vis": 3072})
    data = load_dataset("cifar10", tmp_path)
    assert same_rows(together(data), np.concatenate(parts[:5]))
    assert np.array_equal(data.test.images, parts[5])
    assert data.test.labels.tolist() == list(range(6))
    assert data.class_names == list("abcdef")
    (folder / "data_batch_3").unlink()
    with pytest.raises(FileError):
        load_dataset("cifar10", tmp_path)


def test_cifar100(tmp_path):
    folder = tmp_path / "cifar-100-python"
    x = images(20, 32, 32, 3)
    for part in ("train", "test"):
        write_pickle(folder / part, {"data": rows(x), "fine_labels": labels(20, 4).tolist(), "coarse_labels": [0] * 20})
    write_pickle(folder / "meta", {"fine_label_names": ["a", "b", "c", "d"], "coarse_label_names": ["z"]})
    data = load_dataset("cifar100", tmp_path)
    assert np.array_equal(data.test.images, x)
    assert np.array_equal(data.test.labels, labels(20, 4))
    assert data.class_names == ["a", "b", "c", "d"]
    write_pickle(folder / "test", {"data": rows(x)[:, 1:], "fine_labels": [0] * 20})
    with pytest.raises(FileError):
        load_dataset("cifar100", tmp_path)
    write_pickle(folder / "test", {"data": rows(x)})
    with pytest.raises(FileError):
        load_dataset("cifar100", tmp_path)
    write_pickle(folder / "test", {"data": rows(x), "fine_labels": [[0], [1, 2]]})
    with pytest.raises(FileError):
        load_dataset("cifar100", tmp_path)


# ---------------------------------------------------------------------------------------------- SVHN


def test_svhn(tmp_path):
    x = images(20, 32, 32, 3)
    for part in ("train", "test"):
        savemat(tmp_path / f"{part}_32x32.mat", {"X": x.transpose(1, 2, 3, 0), "y": labels(20)[:, None] + 1})
    data = load_dataset("svhn", tmp_path)
    assert np.array_equal(data.test.images, x)
    assert data.test.labels[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    savemat(tmp_path / "test_32x32.mat", {"X": x.transpose(1, 2, 3, 0), "y": labels(20)[:, None]})
    with pytest.raises(FileError):
        load_dataset("svhn", tmp_path)
    savemat(tmp_path / "test_32x32.mat", {"X": x[0, 0], "y": labels(20)})
    with pytest.raises(FileError):
        load_dataset("svhn", tmp_path)
    savemat(tmp_path / "test_32x32.mat", {"X": x})
    with pytest.raises(FileError):
        load_dataset("svhn", tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(b"nothing of the kind" * 20)
    with pytest.raises(FileError):
        load_dataset("svhn", tmp_path)


# ---------------------------------------------------------------------------------------------- image folders


def write_folder(folder, n=5, size=(8, 6), mode="L"):
    shape = size if mode == "L" else (*size, 3)
    pictures = {}
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for i in range(n):
                pictures[part, name, i] = images(1, *shape)[0]
                Image.fromarray(pictures[part, name, i]).save(folder / part / name / f"{i}.png")
    return pictures


@pytest.mark.parametrize("mode, channels", [("L", 1), ("RGB", 3)])
def test_image_folders(tmp_path, mode, channels):
    pictures = write_folder(tmp_path / "pets", mode=mode)
    (tmp_path / "pets" / "train" / "cat" / "notes.txt").write_text("no picture")
    data = load_dataset("pets", tmp_path)
    assert data.class_names == ["cat", "dog"]
    assert data.test.labels.tolist() == [0] * 5 + [1] * 5
    assert data.test.images.shape == (10, 8, 6, channels)
    assert np.array_equal(data.test.images[7].squeeze(), pictures["test", "dog", 2])


def test_image_folders_of_several_sizes_and_kinds(tmp_path):
    write_folder(tmp_path / "pets")
    odd = tmp_path / "pets" / "train" / "dog" / "zz.JPG"
    Image.fromarray(images(1, 9, 12, 3)[0]).save(odd, "JPEG")
    with pytest.raises(InputError):
        load_dataset("pets", tmp_path)
    data = load_dataset("pets", tmp_path, image_size=(4, 5))
    assert data.test.images.shape == (10, 4, 5, 3)  # one in colour makes all so
    odd.write_bytes(b"no picture")
    with pytest.raises(FileError):
        load_dataset("pets", tmp_path)


def test_incomplete_image_folders(tmp_path):
    write_folder(tmp_path / "pets")
    (tmp_path / "pets" / "test" / "cow").mkdir()
    with pytest.raises(FileError):
        load_dataset("pets", tmp_path)
    (tmp_path / "birds" / "train").mkdir(parents=True)
    with pytest.raises(FileError):
        load_dataset("birds", tmp_path)
    (tmp_path / "birds" / "train" / "owl").mkdir()
    with pytest.raises(FileError):
        load_dataset("birds", tmp_path)
    (tmp_path / "birds" / "test" / "owl").mkdir(parents=True)
    with pytest.raises(FileError):
        load_dataset("birds", tmp_path)


# ---------------------------------------------------------------------------------------------- skin lesions


def write_skin(folder, n=20):
    rows = [f"img{i:02},les{i // 2:02},{'mel' if i % 3 else 'nv'}" for i in range(n)]
    (folder / "HAM10000_metadata.csv").write_text("\n".join(["image_id,lesion_id,dx", *reversed(rows)]))
    with zipfile.ZipFile(folder / "images_200x150_jpg.zip", "w") as archive:
        for i in range(n):
            stream = io.BytesIO()
            Image.new("RGB", (8, 6), (10 * i, 0, 0)).save(stream, "JPEG")
            archive.writestr(f"img{i:02}.jpg", stream.getvalue())


@pytest.mark.parametrize("split", ["random", "lesion"])
def test_skin_lesions(tmp_path, split):
    write_skin(tmp_path)
    data = load_dataset("skin", tmp_path, split=split)
    assert data.validation is None
    assert data.class_names == ["mel", "nv"]
    numbers = [[int(name[3:]) for name in part.extra["image_id"]] for part in (data.train, data.test)]
    assert sorted(numbers[0] + numbers[1]) == list(range(20))
    red = data.test.images[:, 0, 0, 0].astype(float)
    assert np.abs(red - 10 * np.array(numbers[1])).max() < 5  # jpeg is not exact
    assert data.test.labels.tolist() == [0 if i % 3 else 1 for i in numbers[1]]
    shared = set(data.train.extra["lesion_id"]) & set(data.test.extra["lesion_id"])
    assert not shared if split == "lesion" else shared


def test_skin_lesions_are_split_as_in_the_data_card():
    lesions = np.arange(10015) // 2
    for split in ("random", "lesion"):
        train, test = split_rows(lesions, split)
        assert (len(train), len(test)) in [(6009, 4006), (6010, 4005)]  # a lesion of two images may lie on the cut
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(10015))


def test_incomplete_skin_lesions(tmp_path):
    write_skin(tmp_path)
    with (tmp_path / "HAM10000_metadata.csv").open("a") as stream:
        stream.write("\nimg99,les99,nv")
    with pytest.raises(FileError):
        load_dataset("skin", tmp_path)
    (tmp_path / "images_200x150_jpg.zip").unlink()
    with pytest.raises(FileError):
        load_dataset("skin", tmp_path)
    (tmp_path / "HAM10000_metadata.csv").write_text("image_id,dx\na,b")
    with pytest.raises(FileError):
        load_dataset("skin", tmp_path)
    (tmp_path / "HAM10000_metadata.csv").write_text("image_id,lesion_id,dx\n")
    with pytest.raises(FileError):
        load_dataset("skin", tmp_path)


# ---------------------------------------------------------------------------------------------- all


def test_digits_need_no_files(tmp_path):
    data = load_dataset("digits", tmp_path)
    assert [len(part.labels) for part in data.parts.values()] == [1197, 200, 400]
    assert data.test.images.shape == (400, 28, 28, 1)
    assert (data.train.images.min(), data.train.images.max()) == (0, 255)
    assert not data.train.images[:, :2].any()
    every = np.concatenate([part.images for part in data.parts.values()])
    assert len({bytes(image) for image in every}) == 1797  # no image is in two parts


def test_the_first_place_counts(tmp_path):
    write_idx(tmp_path / "MNIST" / "raw", packed=False)
    assert load_dataset("mnist", tmp_path).test.images.shape[1:3] == (28, 28)
    write_npz(tmp_path)
    assert load_dataset("mnist", tmp_path).test.images.shape[1:3] == (5, 4)


def test_what_is_not_there_is_listed(tmp_path):
    with pytest.raises(FileError) as raised:
        load_dataset("cifar10", tmp_path)
    for place in ("cifar10.npz", "cifar-10-batches-py", "cifar10/train"):
        assert str(tmp_path / place) in str(raised.value)


def test_the_held_out_images_are_those_of_the_data_card():
    n = 60000
    numbered = ImageSet(np.zeros((n, 1, 1, 1), np.uint8), np.arange(n))
    data = hold_out(numbered, numbered.take(slice(10)), [str(k) for k in range(n)])
    order = np.random.RandomState(0).permutation(n)
    assert np.array_equal(data.validation.labels, np.sort(order[:5000]))
    assert np.array_equal(data.train.labels, np.sort(order[5000:]))


def test_other_data_have_another_hash(tmp_path):
    arrays = write_npz(tmp_path)
    before = load_dataset("mnist", tmp_path)
    assert before.sha256 == load_dataset("mnist", tmp_path).sha256
    arrays["x_train"][3, 2, 1] ^= 1
    write_npz(tmp_path, **arrays)
    assert before.sha256 != load_dataset("mnist", tmp_path).sha256
    assert before.sha256 != before.limited(10).sha256
    swapped = Dataset(before.train, before.validation, before.test, before.class_names[::-1])
    assert before.sha256 != swapped.sha256


def test_a_limit_applies_to_each_part(tmp_path):
    data = load_dataset("digits", tmp_path, limit=7)
    assert [len(part.labels) for part in data.parts.values()] == [7, 7, 7]
