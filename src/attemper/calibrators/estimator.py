"""What a calibrator is to scikit-learn: a classifier whose parameters are annotations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, dataclass_transform

from sklearn.base import BaseEstimator, ClassifierMixin

__all__ = ["Classifier", "fitted", "recipe"]

Class = TypeVar("Class", bound=type)


def fitted(*, init: Literal[False] = False) -> Any:
    """Declare an attribute of a `Calibrator` that fitting sets, no parameter: ``theta_: float = fitted()``."""
    return field(init=init)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field, fitted))
def recipe(cls: Class) -> Class:
    """Make the annotated fields of a `Calibrator` the keyword parameters of its ``__init__``, but for `fitted` ones.

    The fields of its bases (``input``, ``zeros_as``, ``classes``) are parameters too. scikit-learn reads them off the
    signature.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    return made  # type: ignore[no-any-return]


if TYPE_CHECKING:

    class _Classifier:
        """What type checkers know of scikit-learn's classes, which have no types: without it any keyword would pass."""

        @classmethod
        def _get_param_names(cls) -> list[str]: ...
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def __sklearn_tags__(self) -> Any: ...

else:

    class _Classifier(ClassifierMixin, BaseEstimator):
        """A classifier of scikit-learn."""


Classifier = _Classifier
