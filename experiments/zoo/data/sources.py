"""Where a data set is looked for, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attemper.errors import FileError, InputError
from experiments.zoo.data.archives import read_npz
from experiments.zoo.data.cifar import read_cifar10, read_cifar100
from experiments.zoo.data.digits import read_digits
from experiments.zoo.data.folders import read_folder
from experiments.zoo.data.idx import read_idx
from experiments.zoo.data.images import Dataset
from experiments.zoo.data.skin import METADATA, read_skin_lesions
from experiments.zoo.data.svhn import read_svhn

# The format in which each data set is usually kept: what must be there, and who reads it.
OWN_FORMATS: dict[str, tuple[str, Callable[[Path], Dataset]]] = {
    "mnist": ("MNIST/raw", read_idx),
    "fashion_mnist": ("FashionMNIST/raw", read_idx),
    "cifar10": ("cifar-10-batches-py", read_cifar10),
    "cifar100": ("cifar-100-python", read_cifar100),
    "svhn": ("train_32x32.mat", lambda found: read_svhn(found.parent)),
}


@dataclass(frozen=True)
class Source:
    """One place to look at."""

    path: Path
    read: Callable[[Path], Dataset]


def sources(name: str, folder: Path, split: str, image_size: tuple[int, int] | None) -> list[Source]:
    """Places where this data set may be, in the order in which they are tried."""
    if name == "skin":  # with its own split, so an npz or folder that is split already would be another data set
        return [Source(folder / METADATA, lambda found: read_skin_lesions(found.parent, split))]
    places = [Source(folder / f"{name}.npz", read_npz)]
    if name in OWN_FORMATS:
        what, read = OWN_FORMATS[name]
        places.append(Source(folder / what, read))
    return [*places, Source(folder / name / "train", lambda found: read_folder(found.parent, image_size))]


def load_dataset(
    name: str,
    folder: Path,
    *,
    split: str = "random",
    image_size: tuple[int, int] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Read a data set from the first place where there is one.

    Parameters
    ----------
    name : str
        Such as "cifar10", or any name for which there is ``<name>.npz`` or a folder ``<name>/train``.
    folder : Path
        Where the data sets are.
    split : {"random", "lesion"}
        Skin lesions: by image, or with each lesion on one side.
    image_size : (height, width), optional
        To which image files in folders are resized; without it they must all have one size.
    limit : int, optional
        Take only so many images of each part.
    """
    places = sources(name, folder, split, image_size)
    found = next((place for place in places if place.path.exists()), None)
    if found is not None:
        try:
            data = found.read(found.path)
        except FileError:
            raise  # names its file already
        except InputError as error:
            raise InputError(f"data set {name!r} in {found.path}: {error}") from None
    elif name == "digits":
        data = read_digits()
    else:
        looked_for = "".join(f"\n  {place.path}" for place in places)
        raise FileError(f"data set {name!r} is not there (nothing is downloaded); looked for{looked_for}")
    return data if limit is None else data.limited(limit)
