"""Every number of the paper's four tables, and of its Figures 1 and 6 (arXiv 1810.11586)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EXAMPLES", "LESIONS", "TABLE_1", "TABLE_2", "TABLE_3", "TABLE_4", "T_ATS", "T_TS", "Example", "Score"]


class Score(NamedTuple):
    """The result of one method; accuracy and ECE in per cent."""

    accuracy: float
    nll: float
    ece: float


class Example(NamedTuple):
    """A skin lesion of Figure 1 or 6: label, prediction, and the confidence in the prediction by method.

    Figure 1 does not name its method: there it is ``calibrated``.
    """

    figure: int
    label: str
    predicted: str
    confidence: dict[str, float]


# Accuracy, NLL and ECE uncalibrated; NLL and ECE of TS and of ATS; accuracy, NLL and ECE of matrix and vector scaling.
_TABLE_1 = """
VGG16        Birds    75.975 .929  6.033 .929  6.021 .919  3.572 74.870 .961  5.683 76.99  1.153 11.992
ResNet152    ImageNet 76.71  .935  5.935 .927  5.412 .900  1.982 76.03  .935  5.932 76.99  1.175 12.214
DenseNet40   CIFAR10  92.61  .286  4.089 .234  3.241 .221   .657 81.50  .590  5.793 92.09   .360  4.939
DenseNet40   CIFAR100 71.73 1.088  8.456 1.000 1.148 1.000 1.004 57.50 1.918 19.269 32.48  9.655 52.609
DenseNet100  CIFAR10  95.06  .199  2.618 .156   .594 .156   .580 94.38  .191  2.272 94.97   .247  3.263
DenseNet100  CIFAR100 76.21 1.119 11.969 .886  4.742 .871  1.583 63.92 1.857 19.977 73.67  1.602 18.073
DenseNet100  SVHN     95.72  .181  1.630 .162   .548 .161   .514 95.73  .170  1.126 95.99   .162   .548
ResNet110    CIFAR10  93.71  .312  4.343 .228  4.298 .206   .972 92.13  .285  3.597 93.17   .375  5.033
ResNet110    CIFAR100 70.31 1.248 12.752 1.051 1.804 1.050 1.529 58.03 2.074 20.749 68.15  1.705 19.751
ResNet110    SVHN     96.06  .209  2.697 .158  1.552 .154   .849 96.00  .173  1.769 96.06   .254  2.946
WideResNet32 CIFAR100 75.41 1.166 13.406 .909  4.096 .891  2.511 66.18 1.673 18.265 73.17  1.693 18.7
LeNet5       MNIST    99.03  .105   .727 .061   .674 .0341  .354 98.59  .115  1.152 98.33   .048   .668
VGG16        CIFAR10  92.09  .427  5.99  .301  6.015 .271  2.978 90.66  .364  5.776 91.90   .432  5.968
VGG16        CIFAR100 69.00 1.984 21.493 1.283 8.072 1.273 8.283 51.30 2.290 19.022 68.92  2.441 23.055
"""

# Temperatures of TS and ATS, and θ.
_TABLE_2 = """
VGG16        Birds    1.000 1.101 .01
ResNet152    ImageNet 1.064 1.322 .03
DenseNet40   CIFAR10  2.505 1.921 .04
DenseNet40   CIFAR100 1.450 1.435 .02
DenseNet100  CIFAR10  1.801 1.809 .05
DenseNet100  CIFAR100 2.178 1.904 .01
DenseNet100  SVHN     1.407 1.355 .05
ResNet110    CIFAR10  2.960 2.321 .02
ResNet110    CIFAR100 1.801 1.630 .02
ResNet110    SVHN     2.090 1.975 .01
WideResNet32 CIFAR100 2.104 1.971 .01
LeNet5       MNIST    1.645 2.832 .0008
VGG16        CIFAR10  3.229 1.941 .02
VGG16        CIFAR100 2.741 1.968 .01
"""

# Accuracy, NLL and ECE of MC dropout, then of the ensemble.
_TABLE_3 = """
LeNet5 MNIST    99.33  .044   .453 99.12  .026  .307
VGG16  CIFAR10  93.32  .262  4.239 92.1   .342 5.99
VGG16  CIFAR100 70.45 1.527 18.25  74.38 1.218 6.756
"""

# Figure, label, prediction; confidence uncalibrated and calibrated (Figure 1), or uncalibrated, with TS and with ATS.
_EXAMPLES = """
1 df    df    .99 .98
1 bcc   bcc   .99 .99
1 nv    nv    .99 .98
1 mel   akiec .91 .54
1 akiec bcc   .90 .46
1 bkl   akiec .89 .48
6 nv    nv    .99 .58 .92
6 mel   mel   .99 .58 .93
6 bcc   bcc   .99 .58 .92
6 bkl   mel   .92 .41 .65
6 mel   nv    .93 .43 .68
6 akiec bkl   .87 .45 .65
"""


def _rows(text: str) -> dict[str, list[float]]:
    """Numbers by the name of the row, such as ``VGG16 Birds``."""
    lines = [line.split() for line in text.strip().splitlines()]
    return {" ".join(words[:2]): [float(word) for word in words[2:]] for words in lines}


def _example(words: list[str]) -> Example:
    methods = ("none", "calibrated") if words[0] == "1" else ("none", "ts", "ats")
    return Example(int(words[0]), words[1], words[2], dict(zip(methods, map(float, words[3:]))))


TABLE_1 = {
    name: {
        "none": Score(v[0], v[1], v[2]),
        "ts": Score(v[0], v[3], v[4]),
        "ats": Score(v[0], v[5], v[6]),
        "matrix": Score(*v[7:10]),
        "vector": Score(*v[10:13]),
    }
    for name, v in _rows(_TABLE_1).items()
}
TABLE_2 = {name: dict(zip(("ts", "ats", "theta"), v)) for name, v in _rows(_TABLE_2).items()}
TABLE_3 = {name: {"mc": Score(*v[:3]), "ensemble": Score(*v[3:])} for name, v in _rows(_TABLE_3).items()}
T_TS, T_ATS = 4.934, 3.548  # of Table 4
TABLE_4 = {  # accuracy, NLL, ECE, T and θ
    "none": (89.14, 0.696, 8.374, None, None),
    "ts": (89.14, 0.379, 7.978, T_TS, None),
    "ats": (89.14, 0.333, 1.157, T_ATS, 0.01),
}
EXAMPLES = [_example(line.split()) for line in _EXAMPLES.strip().splitlines()]

# The paper's names of the classes of HAM10000; vascular lesions are not among its examples.
LESIONS = {
    "akiec": "Bowen",
    "bcc": "BCC",
    "bkl": "keratosis",
    "df": "dermatofib.",
    "mel": "melanoma",
    "nv": "nevus",
    "vasc": "vascular lesion",
}
