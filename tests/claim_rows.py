"""Made-up rows of the studies, with which each claim of the paper gets each verdict."""

from itertools import product

from experiments.claims import CLAIMS, Results

MNIST, CIFAR, SKIN, APART = (
    "lenet5-mnist-s0",
    "vgg16-cifar10-s0",
    "resnet200-skin-randomsplit-s0",
    "resnet200-skin-lesionsplit-s0",
)
TEN = [f"{arch}-s{seed}" for arch in ("lenet5-mnist", "vgg16-cifar10", "vgg16-cifar100") for seed in (0, 1, 2)] + [
    "densenet40-cifar10-s0"
]
METHODS = ("none", "ts", "ats", "bayes", "structured")
KINDS = ("uniform", "confusable")
SHARES = (0.1, 0.3, 0.5)
SIZES = (10, 100, 1000)

BY_TITLE = {claim.title: claim for claim in CLAIMS}


def study(value, **columns):
    """Return a row for each combination; ``value`` gives what was measured."""
    rows = []
    for cells in product(*columns.values()):
        row = dict(zip(columns, cells))
        rows.append(row | value(row))
    return rows


def table1(value, networks, methods=(*METHODS, "best", "vector", "matrix"), divisions=2):
    """Return rows of Table 1: an NLL of 1 and an accuracy of 95, where ``value`` has no other number."""
    plain = {"nll": 1.0, "ece": 5.0, "accuracy": 95.0, "temperature": 1.5, "converged": 1}
    return study(lambda row: plain | value(row), network=networks, division=range(divisions), method=methods)


def noise(nll, networks=(MNIST, CIFAR)):
    """Return rows of the noise study; ``nll`` is a function of network, kind, share and method."""
    cases = [("none", 0), *product(KINDS, SHARES)]
    rows = study(lambda row: {}, network=networks, case=cases, repeat=range(3), method=METHODS)
    rows = [{**row, "kind": row["case"][0], "share": row["case"][1]} for row in rows]
    return [{**row, "nll": nll(row)} for row in rows]


def size(nll, networks=(MNIST, CIFAR)):
    """Return rows of the size study."""
    return study(
        lambda row: {
            "nll": nll(row),
            "accuracy": 99.0 if row["network"] == MNIST else 90.0,
            "temperature": 0.05 if nll(row) > 1.4 and row["repeat"] == 0 else 1.5,
        },
        network=networks,
        labels=SIZES,
        repeat=range(3),
        method=METHODS,
    )


def table3(value, networks=(MNIST, CIFAR)):
    """Return rows of Table 3: averages no better than TS on one network, unless ``value`` has other numbers."""
    plain = {"nll": 1.0, "ece": 5.0, "accuracy": 90.0, "temperature": 1.5}
    sources = ("single", "dropout-off", "mc", "ensemble")
    return study(
        lambda row: plain | value(row), network=networks, division=range(2), source=sources, method=METHODS[:4]
    )


def skin(value):
    """Return rows of Table 4 and of the referral study."""
    plain = {"nll": 1.0, "ece": 5.0, "accuracy": 80.0, "area": 0.8, "area_paper": 0.8}
    plain |= {"confidence_right": 0.9, "confidence_wrong": 0.7}
    columns = {"network": (SKIN, APART), "what": ("division",), "division": range(2), "method": METHODS}
    rows = study(lambda row: plain | value(row), **columns)
    curve = {"what": "curve, 21", "method": "none", "threshold": 0.95, "correct_decided": 0.7, "errors_referred": 0.6}
    return rows + [{"network": n, "division": 0, **curve} for n in (SKIN, APART)]


def overconfident(bad):
    def value(row):
        if row["method"] != "ts":
            return {}
        return {"temperature": 0.9} if row["network"] in TEN[:bad] else {"nll": 0.9, "ece": 1.0}

    return {"table1": table1(value, TEN), "table3": table3(lambda row: {})}


def failing_with_noise(failing):
    return {
        "noise": noise(lambda r: 1.5 if r["method"] == "ts" and r["share"] == 0.5 and r["network"] in failing else 1.0)
    }


def failing_with_few(failing):
    return {
        "size": size(lambda r: 1.5 if r["method"] == "ts" and r["labels"] == 10 and r["network"] in failing else 1.0)
    }


def far_from_best(above, sizes):
    """TS is above the best T on accurate networks with all labels, and further with some smaller numbers of labels."""

    def value(row):
        exact = "mnist" in row["network"]
        best = {"nll": 1.0 - above} if exact and row["method"] == "best" else {}
        return {"accuracy": 99.0 if exact else 80.0} | best

    few = size(lambda r: 1.5 if r["method"] == "ts" and r["labels"] in sizes and r["network"] == MNIST else 1.0)
    return {"table1": table1(value, TEN, divisions=3), "size": few}


def ats_better(better, accuracy=95.0, measure="nll"):
    gain = {"nll": 0.9} if measure == "nll" else {"ece": 4.0}

    def value(row):
        gained = gain if row["method"] == "ats" and row["network"] in TEN[:better] else {}
        return {"accuracy": accuracy if row["network"] == TEN[0] else 95.0} | gained

    return {"table1": table1(value, TEN)}


def changed_temperature(better, changed=4):
    def value(row):
        if row["method"] != "ats":
            return {}
        place = TEN.index(row["network"])
        return {"temperature": 1.6 if place < changed else 1.5, "nll": 0.9 if place < better else 1.0}

    return {"table1": table1(value, TEN)}


def accuracy_changed(times):
    def value(row):
        return {"accuracy": 94.0} if row["method"] == "ats" and row["network"] in TEN[:times] else {}

    return {"table1": table1(value, TEN)}


def cost(small, large, memory):
    """Return rows with these factors of ATS over TS: the time of a small and of a large set, and the memory."""
    rows = [("time", "9000×10", large), ("time", "2000×10", small), ("memory", "9000×10", memory)]
    return {
        "benchmarks": [{"what": what, "size": n, "type": "float64", "ts": 1.0, "ats": ratio} for what, n, ratio in rows]
    }


def attended_loss(temperature):
    rows = study(
        lambda row: {"temperature": 1.5, "theta": None}, network=(MNIST, CIFAR), repeat=range(2), method=("ts",)
    )
    rows += study(
        lambda row: {"temperature": temperature(row)},
        network=(MNIST, CIFAR),
        repeat=range(2),
        method=("ats",),
        theta=(0.01, 0.1),
    )
    return {"consistency": rows, "table1": table1(lambda row: {}, [MNIST, CIFAR])}


def ats_with_noise(kinds_below_ts, nll=0.5):
    """TS has an NLL of 2 with wrong labels, ATS another one for these kinds, no calibration 1."""

    def value(row):
        if row["share"] == 0 or row["method"] == "none":
            return 0.4 if row["method"] == "ts" else 1.0
        return nll if row["method"] == "ats" and row["kind"] in kinds_below_ts else 2.0

    return {"noise": noise(value)}


def ats_with_few(networks, nll=0.4, spread=0.0):
    """TS has an NLL of 2 with few labels and of 0.4 with all of them; ATS on these networks another one with few."""

    def value(row):
        if row["method"] == "none":
            return 1.0
        if row["labels"] == max(SIZES):
            return 0.4
        wide = 1 + 0.1 * row["repeat"]
        if row["method"] == "ats" and row["network"] in networks:
            return nll * (1 + spread * row["repeat"])
        return 2.0 * wide

    return {"size": size(value)}


def unstable(networks, stable=None):
    """ATS varies more than TS on some networks, and less on another."""
    rows = ats_with_few(networks, nll=1.0, spread=5.0)["size"] if networks else []
    steady = ats_with_few((stable,))["size"]
    return {"size": [row for row in steady if row["network"] == stable] + [r for r in rows if r["network"] != stable]}


def optimum(few, wrong):
    return ats_with_few((MNIST, CIFAR), few) | ats_with_noise(KINDS, wrong)


def overfitting(methods, networks):
    def value(row):
        if row["method"] in ("vector", "matrix"):
            worse = row["method"] in methods and row["network"] in TEN[:networks]
            return {"nll": 1.2, "accuracy": 90.0} if worse else {}
        return {}

    return {"table1": table1(value, TEN)}


def averages(sources, networks, **better):
    def value(row):
        good = row["source"] in sources and row["network"] in networks and row["method"] == "none"
        return better if good else {}

    return {"table3": table3(value)}


def skin_of(method, networks=(SKIN, APART), **measures):
    rows = skin(lambda row: measures if row["method"] == method and row["network"] in networks else {})
    return {"table4": rows, "referral": rows}


ALL = {"accuracy": 92.0, "nll": 0.9, "ece": 1.0}
SITUATIONS = {
    "Deep networks are over-confident, and TS corrects that": [overconfident(0), overconfident(5), overconfident(6)],
    "TS fails when labels are wrong": [failing_with_noise(n) for n in ((MNIST, CIFAR), (CIFAR,), ())],
    "TS fails when the validation set is small": [failing_with_few(n) for n in ((MNIST, CIFAR), (CIFAR,), ())],
    "TS calibrates highly accurate networks less well than others": [
        far_from_best(0.1, ()),
        far_from_best(0.0005, (10, 100)),
        far_from_best(0.0005, (10,)),
    ],
    "ATS calibrates better than TS and all others": [ats_better(9), ats_better(5, measure="ece"), ats_better(4)],
    "… most of all for highly accurate networks": [ats_better(9), ats_better(6, 60.0), ats_better(5, 60.0)],
    "A small change of T improves NLL significantly": [changed_temperature(n) for n in (2, 1, 0)],
    "ATS keeps the accuracy": [accuracy_changed(n) for n in (0, 5, 6)],
    "ATS has the time and memory complexity of TS": [cost(1.5, 1.9, 1.5), cost(8.0, 8.0, 1.5), cost(3.0, 8.0, 1.5)],
    "The attended loss is a measure of calibration": [
        attended_loss(lambda row: 1.52),
        attended_loss(lambda row: 1.5 if row["theta"] == 0.1 else 3.0),
        attended_loss(lambda row: 1.5 if (row["theta"] == 0.1) == (row["network"] == MNIST) else 3.0),
    ],
    "ATS is robust to wrong labels": [
        ats_with_noise(KINDS),
        ats_with_noise(KINDS, nll=1.5),
        ats_with_noise(()),
    ],
    "ATS needs fewer labels than TS": [ats_with_few(n) for n in ((MNIST, CIFAR), (CIFAR,), ())],
    "ATS is more stable than TS with few labels": [
        ats_with_few((MNIST, CIFAR)),
        unstable((MNIST,), CIFAR),
        unstable((MNIST, CIFAR)),
    ],
    "ATS finds the optimal T where TS fails": [optimum(0.4, 0.4), optimum(0.9, 0.9), optimum(1.9, 1.9)],
    "Matrix and vector scaling overfit": [
        overfitting(("vector", "matrix"), 9),
        overfitting(("matrix",), 9),
        overfitting(("vector", "matrix"), 8),
    ],
    "MC dropout and ensembles improve accuracy and calibration, beyond other methods": [
        averages(("mc", "ensemble"), (MNIST, CIFAR), **ALL),
        averages(("ensemble",), (MNIST, CIFAR), nll=0.9),
        averages(("mc", "ensemble"), (MNIST, CIFAR), ece=1.0),
    ],
    "ATS calibrates the skin-lesion network better than TS": [
        skin_of("ats", nll=0.9),
        skin_of("ats", (APART,), ece=4.0),
        skin_of("ats", nll=0.9995),
    ],
    "Better calibration makes a better referral system": [
        skin_of("ts", area=0.85, area_paper=0.85),
        skin_of("ts", area_paper=0.85),
        skin_of("ts", (SKIN,), area=0.85, area_paper=0.85),
    ],
    "… and ATS a better one than TS": [
        skin_of("ats", area=0.85),
        skin_of("ats", area_paper=0.85),
        skin_of("ats", area=0.8005),
    ],
    "Calibration keeps the confidence of right predictions high and lowers that of wrong ones": [
        skin_of("ts", confidence_wrong=0.5),
        skin_of("ts", confidence_right=0.8, confidence_wrong=0.5),
        skin_of("ts", confidence_right=0.8, confidence_wrong=0.6),
    ],
    "ATS separates right and wrong predictions more than TS": [
        skin_of("ats", confidence_wrong=0.6),
        skin_of("ats", (SKIN,), confidence_right=0.95),
        skin_of("ats", confidence_right=0.8, confidence_wrong=0.6),
    ],
}
VERDICTS = ("holds", "holds in part", "does not hold")
EVERY = [
    (title, verdict, rows) for title, three in SITUATIONS.items() for verdict, rows in zip(VERDICTS, three, strict=True)
]


def found(title, rows):
    """Return what a claim finds in rows."""
    return BY_TITLE[title].find(Results(rows))
