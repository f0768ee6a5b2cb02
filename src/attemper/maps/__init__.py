"""Maps: what a calibration does to logits at inference time.

A calibrator is a recipe; a map is its result, and all that production needs.
Maps take any array (NumPy, torch on its device, JAX, …) and give back the same kind,
device and precision.
"""

from __future__ import annotations

import numpy as np

from attemper.documents import Fields
from attemper.errors import FileError, InputError
from attemper.maps.affine import CENTRINGS, AffineMap
from attemper.maps.base import Map
from attemper.maps.bins import BinMap
from attemper.maps.odds import OddsMap
from attemper.maps.scale import MixtureMap, ScaleMap

__all__ = ["AffineMap", "BinMap", "Map", "MixtureMap", "OddsMap", "ScaleMap", "map_from_fields"]


def map_from_fields(content: Fields) -> Map:
    """Read back what `Map.to_dict` gave; everything is checked."""
    kind = content.text("type")
    try:
        if kind == "scale":
            return ScaleMap(content.number("beta"))
        if kind == "mixture":
            weights, betas = content.array("weights", (-1,)), content.array("betas", (-1,))
            return MixtureMap(tuple(weights.tolist()), tuple(betas.tolist()), content.number("floor"))
        if kind == "affine":
            return _affine(content)
        if kind == "odds":
            return OddsMap(*(content.array(name, (-1,)) for name in "abc"))
        if kind == "bins":
            return _bins(content)
    except InputError as error:
        raise FileError(f"{content.where}: {error}") from None
    raise FileError(f"{content.where}: a map of type {kind!r} is unknown to this version of attemper")


def _affine(content: Fields) -> AffineMap:
    bias = content.array("bias", (-1,))
    shape = (-1,) if content.boolean("diagonal") else (len(bias), len(bias))
    centring = content.text("centring")
    if centring not in CENTRINGS:
        raise FileError(f"{content.where}: the centring {centring!r} is unknown to this version of attemper")
    then = content.fields("then")
    if then.text("type") not in ("scale", "mixture"):
        raise FileError(f"{then.where}: an affine map ends in a temperature or a mixture of them")
    return AffineMap(content.array("weight", shape), bias, centring, map_from_fields(then))


def _bins(content: Fields) -> BinMap:
    sizes = content.array("sizes", (-1,))
    if not ((sizes >= 1) & (sizes == np.floor(sizes)) & (sizes <= 2**31)).all():
        raise FileError(f"{content.where}: the field 'sizes' must hold whole numbers, at least 1")
    knots, values = content.array("knots", (-1,)), content.array("values", (-1,))
    return BinMap(sizes.astype(np.int64), knots, values, content.boolean("linear"))
