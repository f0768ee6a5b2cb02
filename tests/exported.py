"""Maps of every kind, logits of every kind, and what NumPy says: what each export is held against."""

from __future__ import annotations

import numpy as np

from attemper import VennAbers
from attemper.maps import AffineMap, BinMap, MixtureMap, OddsMap, ScaleMap, TiltedMap

K = 5
_rng = np.random.default_rng(5)
_W = np.eye(K) * 0.6 + 0.05 * _rng.normal(size=(K, K))
_B = 0.3 * _rng.normal(size=K)
_KNOTS = np.sort(_rng.uniform(size=(K, 6)), axis=1)

MAPS = {
    "scale": ScaleMap(0.37),
    "sharp": ScaleMap(3.1),
    "mixture": MixtureMap((0.5, 0.3, 0.2), (0.4, 0.9, 1.7), 0.0),
    "floor": MixtureMap((0.5, 0.3), (0.4, 1.7), 0.2),
    "vector": AffineMap(np.linspace(0.4, 0.9, K), _B),
    "matrix": AffineMap(_W, _B, "none"),
    "no bias": AffineMap(_W, np.zeros(K), "mean"),
    "scaled matrix": AffineMap(_W, _B, "mean", ScaleMap(0.7)),
    "dirichlet": AffineMap(_W, _B, "log_probs"),
    "structured": AffineMap(_W, _B, "mean", MixtureMap((0.6, 0.3), (0.8, 1.3), 0.1)),
    "odds": OddsMap(np.linspace(0.4, 0.9, K), np.linspace(1.1, 0.5, K), 0.2 * _B),
    "platt": OddsMap(np.full(K, 0.6), np.full(K, 0.6), _B),
    "steps": BinMap(np.full(K, 6), _KNOTS.ravel(), np.tile([0.1, 0.2, 0.2, 0.5, 0.7, 0.9], K), linear=False),
    "venn_abers": VennAbers().fit(3 * _rng.normal(size=(60, K)), np.arange(60) % K).map_,
    "isotonic": BinMap(
        np.array([1, 2, 6, 3, 4]),
        np.r_[0.5, 0.1, 0.9, _KNOTS[2], 0.0, 0.5, 1.0, 0.01, 0.3, 0.6, 0.99],
        np.r_[0.3, 0.0, 1.0, np.linspace(0, 1, 6), 0.0, 0.4, 1.0, 0.0, 0.1, 0.7, 0.7],
        linear=True,
    ),
    "tilted": TiltedMap(MixtureMap((0.5, 0.3), (0.4, 1.7), 0.2), 1.3),
    "tilted biases": TiltedMap(OddsMap(np.full(K, 0.6), np.full(K, 0.6), _B), 0.8, 0.5 * _B),
}
CURVES = {  # for two classes
    "curve": AffineMap(np.array([0.8, 0.6]), np.array([0.2, -0.3]), curve=np.array([-0.1, 0.15]), curve_scale=0.7),
    "matrix": AffineMap(_W[:2, :2], _B[:2], "none", ScaleMap(0.7), np.array([0.1, 0.2]), 1.3),
    "log_probs": AffineMap(_W[:2, :2], _B[:2], "log_probs", curve=np.array([0.3, -0.2])),
    "structured": AffineMap(
        np.array([0.5, 0.5]), _B[:2], "mean", MixtureMap((0.6, 0.3), (0.8, 1.3), 0.1), np.array([-0.2, 0.2]), 0.5
    ),
}
BINARY = BinMap(np.array([3]), np.array([0.0, 0.4, 0.8]), np.array([0.1, 0.5, 0.8]), linear=True)


def random_logits(n=64, k=K, seed=1):
    return (3 * np.random.default_rng(seed).normal(size=(n, k))).astype(np.float32)


def extreme_logits():
    """Rows that are huge, masked, tied, equal, or next to each other, in single precision."""
    next_to = np.nextafter(np.float32(1.0), np.float32(2.0))
    rows = [
        [1e4, -1e4, 0, 5, 9999],
        [-1e4, -1e4, -1e4, -1e4, -1e4 + 1],
        [-np.inf, 1, 2, -np.inf, 0],
        [-np.inf, -np.inf, -np.inf, 3, -np.inf],
        [-np.inf, 1e4, -1e4, -np.inf, 0],
        [2, 2, 2, 2, 2],
        [0, 0, 0, 0, 0],
        [3, 3, -1, 3, 3],
        [1, next_to, 1, 1, 1],
        [1e-38, 2e-38, 0, 0, 0],
        [-100, -200, 50, 49.99, -1000],
    ]
    return np.array(rows, dtype=np.float32)


def extreme_pairs():
    """Two classes whose margins are huge, tiny or none, or of which one is masked."""
    rows = [[1e4, -1e4], [-1e4, 1e4], [1e4, 1e4 + 1], [0, 0], [0, 1e-38], [-80, 40], [3, -np.inf], [-np.inf, -1e4]]
    return np.array(rows, dtype=np.float32)


def exact(m, logits, log=False):
    """What the map says of these logits, computed in double precision."""
    h = np.asarray(logits, dtype=np.float64)
    rows = h.reshape(-1, h.shape[-1])
    return (m.log_apply(rows) if log else m.apply(rows)).reshape(h.shape)
