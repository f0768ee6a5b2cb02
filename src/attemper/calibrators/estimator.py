"""What a calibrator is to scikit-learn: parameters by annotation, a text of one line, and HTML for notebooks."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, dataclass_transform

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import estimator_html_repr

__all__ = ["ShownEstimator", "fitted", "recipe"]

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
        def __repr__(self, N_CHAR_MAX: int = 700) -> str: ...
        def __sklearn_tags__(self) -> Any: ...
        def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]: ...

else:

    class _Classifier(ClassifierMixin, BaseEstimator):
        """A classifier of scikit-learn."""


class ShownEstimator(_Classifier):
    """What an estimator shows of itself: one line, and in a notebook also what was fitted."""

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return scikit-learn's text, in one line."""
        return " ".join(line.strip() for line in super().__repr__(N_CHAR_MAX).splitlines())

    def _fitted_facts(self) -> list[str]:
        """Return what was fitted, in sentences; nothing before the fit."""
        raise NotImplementedError

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's HTML, and what was fitted."""
        diagram = str(estimator_html_repr(self))
        items = "".join(f"<li>{html.escape(fact)}</li>" for fact in self._fitted_facts())
        return f"<div>{diagram}<ul>{items}</ul></div>" if items else diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle
