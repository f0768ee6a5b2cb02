"""Images and labels, from the files that people usually have of them; nothing is downloaded."""

from experiments.zoo.data.images import SPLIT_SEED, Dataset, ImageSet
from experiments.zoo.data.sources import load_dataset

__all__ = ["SPLIT_SEED", "Dataset", "ImageSet", "load_dataset"]
