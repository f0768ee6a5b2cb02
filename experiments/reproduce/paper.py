"""Every number of the paper's four tables and of the examples in its Figures 1 and 6 (arXiv 1810.11586)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "EXAMPLES",
    "LESIONS",
    "MODELS",
    "SETS",
    "TABLE_1",
    "TABLE_2",
    "TABLE_3",
    "TABLE_4",
    "TABLE_4_FOUND",
    "Example",
    "Network",
    "Score",
    "title",
]


class Network(NamedTuple):
    """A network of the paper: our names of its architecture and its data."""

    arch: str
    dataset: str


class Score(NamedTuple):
    """One method's result; accuracy and ECE in per cent."""

    accuracy: float
    nll: float
    ece: float


class Example(NamedTuple):
    """A skin lesion of Figure 1 or 6: confidence in the predicted class, before and after.

    Figure 1 does not name the method: there it is ``calibrated``.
    """

    figure: int
    label: str
    predicted: str
    none: float
    ts: float | None = None
    ats: float | None = None
    calibrated: float | None = None


# The paper's names for what we call otherwise. It does not describe its WideResNet32; ours is the 28-10.
MODELS = {
    "densenet40": "DenseNet40",
    "densenetbc100": "DenseNet100",
    "lenet5": "LeNet5",
    "resnet110": "ResNet110",
    "resnet152": "ResNet152",
    "resnet200": "ResNet200",
    "vgg16": "VGG16",
    "wideresnet28x10": "WideResNet",
}
SETS = {
    "birds": "Birds",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion_mnist": "Fashion-MNIST",
    "imagenet": "ImageNet",
    "mnist": "MNIST",
    "skin": "skin lesions",
    "svhn": "SVHN",
}

# Table 1: accuracy; NLL and ECE uncalibrated, of TS, of ATS; accuracy, NLL and ECE of matrix and of vector scaling.
_ROWS_1 = """
vgg16           birds    75.975 .929  6.033 .929  6.021 .919  3.572 74.870 .961  5.683 76.99  1.153 11.992
resnet152       imagenet 76.71  .935  5.935 .927  5.412 .900  1.982 76.03  .935  5.932 76.99  1.175 12.214
densenet40      cifar10  92.61  .286  4.089 .234  3.241 .221   .657 81.50  .590  5.793 92.09   .360  4.939
densenet40      cifar100 71.73 1.088  8.456 1.000 1.148 1.000 1.004 57.50 1.918 19.269 32.48  9.655 52.609
densenetbc100   cifar10  95.06  .199  2.618 .156   .594 .156   .580 94.38  .191  2.272 94.97   .247  3.263
densenetbc100   cifar100 76.21 1.119 11.969 .886  4.742 .871  1.583 63.92 1.857 19.977 73.67  1.602 18.073
densenetbc100   svhn     95.72  .181  1.630 .162   .548 .161   .514 95.73  .170  1.126 95.99   .162   .548
resnet110       cifar10  93.71  .312  4.343 .228  4.298 .206   .972 92.13  .285  3.597 93.17   .375  5.033
resnet110       cifar100 70.31 1.248 12.752 1.051 1.804 1.050 1.529 58.03 2.074 20.749 68.15  1.705 19.751
resnet110       svhn     96.06  .209  2.697 .158  1.552 .154   .849 96.00  .173  1.769 96.06   .254  2.946
wideresnet28x10 cifar100 75.41 1.166 13.406 .909  4.096 .891  2.511 66.18 1.673 18.265 73.17  1.693 18.7
lenet5          mnist    99.03  .105   .727 .061   .674 .0341  .354 98.59  .115  1.152 98.33   .048   .668
vgg16           cifar10  92.09  .427  5.99  .301  6.015 .271  2.978 90.66  .364  5.776 91.90   .432  5.968
vgg16           cifar100 69.00 1.984 21.493 1.283 8.072 1.273 8.283 51.30 2.290 19.022 68.92  2.441 23.055
"""

# Table 2: the temperatures of TS and ATS, and θ.
_ROWS_2 = """
vgg16           birds    1.000 1.101 .01
resnet152       imagenet 1.064 1.322 .03
densenet40      cifar10  2.505 1.921 .04
densenet40      cifar100 1.450 1.435 .02
densenetbc100   cifar10  1.801 1.809 .05
densenetbc100   cifar100 2.178 1.904 .01
densenetbc100   svhn     1.407 1.355 .05
resnet110       cifar10  2.960 2.321 .02
resnet110       cifar100 1.801 1.630 .02
resnet110       svhn     2.090 1.975 .01
wideresnet28x10 cifar100 2.104 1.971 .01
lenet5          mnist    1.645 2.832 .0008
vgg16           cifar10  3.229 1.941 .02
vgg16           cifar100 2.741 1.968 .01
"""

# Table 3: accuracy, NLL and ECE of MC dropout, then of the ensemble.
_ROWS_3 = """
lenet5 mnist    99.33  .044   .453 99.12  .026  .307
vgg16  cifar10  93.32  .262  4.239 92.1   .342 5.99
vgg16  cifar100 70.45 1.527 18.25  74.38 1.218 6.756
"""


def _rows(text: str) -> dict[Network, list[float]]:
    lines = [line.split() for line in text.strip().splitlines()]
    return {Network(*words[:2]): [float(word) for word in words[2:]] for words in lines}


def _table_1(v: list[float]) -> dict[str, Score]:
    acc = v[0]
    return {
        "none": Score(acc, v[1], v[2]),
        "ts": Score(acc, v[3], v[4]),
        "ats": Score(acc, v[5], v[6]),
        "matrix": Score(*v[7:10]),
        "vector": Score(*v[10:13]),
    }


TABLE_1 = {network: _table_1(v) for network, v in _rows(_ROWS_1).items()}
TABLE_2 = {network: {"ts": v[0], "ats": v[1], "theta": v[2]} for network, v in _rows(_ROWS_2).items()}
TABLE_3 = {network: {"mc": Score(*v[:3]), "ensemble": Score(*v[3:])} for network, v in _rows(_ROWS_3).items()}
TABLE_4 = {
    "none": Score(89.14, 0.696, 8.374),
    "ts": Score(89.14, 0.379, 7.978),
    "ats": Score(89.14, 0.333, 1.157),
}
TABLE_4_FOUND = {"ts": 4.934, "ats": 3.548, "theta": 0.01}

# The paper's names of the classes of HAM10000; vascular lesions are not among its examples.
LESIONS = {
    "akiec": "Bowen",
    "bcc": "BCC",
    "bkl": "Benign keratosis",
    "df": "Dermatofibroma",
    "mel": "Melanoma",
    "nv": "Melanocytic nevus",
    "vasc": "Vascular lesion",
}
EXAMPLES = (
    Example(1, "df", "df", 0.99, calibrated=0.98),
    Example(1, "bcc", "bcc", 0.99, calibrated=0.99),
    Example(1, "nv", "nv", 0.99, calibrated=0.98),
    Example(1, "mel", "akiec", 0.91, calibrated=0.54),
    Example(1, "akiec", "bcc", 0.90, calibrated=0.46),
    Example(1, "bkl", "akiec", 0.89, calibrated=0.48),
    Example(6, "nv", "nv", 0.99, ts=0.58, ats=0.92),
    Example(6, "mel", "mel", 0.99, ts=0.58, ats=0.93),
    Example(6, "bcc", "bcc", 0.99, ts=0.58, ats=0.92),
    Example(6, "bkl", "mel", 0.92, ts=0.41, ats=0.65),
    Example(6, "mel", "nv", 0.93, ts=0.43, ats=0.68),
    Example(6, "akiec", "bkl", 0.87, ts=0.45, ats=0.65),
)


def title(arch: str, dataset: str) -> str:
    """Return a network's name as a reader of the paper knows it."""
    return f"{MODELS.get(arch, arch)}, {SETS.get(dataset, dataset)}"
