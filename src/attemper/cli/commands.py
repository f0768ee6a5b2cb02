"""The commands: each calls the public function of its name, writes what `-o` names, and prints the result."""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from itertools import starmap
from typing import Any, NamedTuple

from attemper import verbs
from attemper._json import plain
from attemper.cli.gates import Condition
from attemper.cli.options import as_flags, check_output, parameters, signature_of
from attemper.data.checking import Finding
from attemper.data.frames import IDS
from attemper.errors import AttemperWarning

# Parameters that may name files.
PATHS = (
    "calibrator", "data", "val", "test", "model", "reference", "state", "labels", "sample_weight", "clusters", "groups",
    "ids",
)  # fmt: skip


class Done(NamedTuple):
    """What a command returns: the result, whether it is a finding, what was written, and more for JSON."""

    result: Any
    failed: bool = False
    wrote: str | None = None
    more: dict[str, Any] | None = None


Verb = Callable[..., Any]
Call = partial[Any]


def command(verb: Verb, suffix: str | None = None) -> Callable[[Callable[..., Done]], Callable[..., int]]:
    """Make a command of a public function: its parameters, and those of the decorated function, after the first."""

    def made(own: Callable[..., Done]) -> Callable[..., int]:
        signature = signature_of(verb, own)
        mine = [name for name in list(inspect.signature(own).parameters)[1:] if name != "params"]

        @wraps(own)
        def run(*args: Any, **kwargs: Any) -> int:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            as_json, _ = given.pop("json"), given.pop("debug")
            shell = {name: given.pop(name) for name in mine}
            paths = [given.get(name) for name in PATHS]
            inputs = [p for path in paths for p in (path if isinstance(path, list) else [path]) if isinstance(p, str)]
            check_output(shell.get("output"), suffix, inputs)
            given |= parameters(given.pop("params", None) or [])
            of = signature.parameters  # None is left to the function, unless its default is another
            options = {n: v for n, v in given.items() if v is not None or (n in of and of[n].default is not None)}
            options |= {name: False for name in IDS if options.get(name) == "none"}
            if not options.get("multi_label", True):
                del options["multi_label"]
            with _warnings(own.__name__):
                done = own(partial(verb, **options), **shell)
            _emit(done, as_json=as_json)
            return int(done.failed)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        del run.__wrapped__
        return run

    return made


@contextmanager
def _warnings(name: str) -> Iterator[None]:
    """Print each of our warnings once, as one line; those of other packages are theirs."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = as_flags(str(message), name)
        if text not in seen:
            print(f"warning: {text}", file=sys.stderr)
        seen.add(text)

    with warnings.catch_warnings():
        warnings.simplefilter("always", AttemperWarning)
        warnings.showwarning = show
        yield


def _emit(done: Done, *, as_json: bool) -> None:
    """Print a result: its text, or all of its numbers."""
    if as_json:
        found = done.result if type(done.result) is dict else done.result.to_dict()
        print(json.dumps(plain({**found, **(done.more or {})}), indent=1, ensure_ascii=False))
        return
    facts = done.result.items() if type(done.result) is dict else None
    print("\n".join(f"{key}: {value}" for key, value in facts) if facts else str(done.result))
    if done.wrote is not None:
        print(f"wrote {done.wrote}")


@command(verbs.check)
def check(call: Call) -> Done:
    """Return findings; some are a failure."""
    found = call()
    texts = ((each.level, as_flags(each.message, "check"), as_flags(each.fix, "check")) for each in found.findings)
    return Done(replace(found, findings=tuple(starmap(Finding, texts))), failed=not found)


@command(verbs.fit, ".json")
def fit(call: Call, *, params: Any = None, output: str) -> Done:
    """Save the fitted calibrator."""
    calibrator = call()
    calibrator.save(output)
    return Done(calibrator, wrote=output)


@command(verbs.sketch, ".json")
def sketch(call: Call, *, output: str) -> Done:
    """Save the sketch."""
    found = call()
    found.save(output)
    return Done(found.facts(), wrote=output)


@command(verbs.apply)
def apply(call: Call, *, output: str | None = None) -> Done:
    """Write the table, piece by piece."""
    from attemper.applying import tables
    from attemper.data.files import Writer

    if output is None:
        return Done(call())
    cal, found = tables(**call.keywords)
    facts: dict[str, Any] = {"rows": 0}
    if call.keywords.get("priors") == "estimate":
        facts |= {f"share of {name}": round(float(share), 4) for name, share in zip(cal.classes_, cal.priors_)}
    with Writer(output) as writer:
        for table in found:
            writer.add(table)
            facts["rows"] += len(next(iter(table.values())))
            if "refer" in table:
                facts["referred"] = facts.get("referred", 0) + int(table["refer"].sum())
    return Done(facts, wrote=output)


@command(verbs.evaluate)
def evaluate(call: Call, *, fail_if: Any = None) -> Done:
    """Evaluate, then check conditions."""
    conditions = [Condition.parse(text) for text in fail_if or ()]
    found = call()
    checked = [condition.check(found) for condition in conditions]
    for each in checked:
        if each["failed"]:
            print(f"failed: {each['condition']}, with {each['value']:.4g}", file=sys.stderr)
    more = {"fail_if": checked} if checked else None
    return Done(found, failed=any(each["failed"] for each in checked), more=more)


@command(verbs.compare, ".html")
def compare(call: Call, *, output: str | None = None, card: str | None = None) -> Done:
    """Write the report, too, where `-o` names it."""
    about = None
    if card is not None:
        from attemper.report.page import read_card

        about = read_card(card)
    found = call()
    if output is not None:
        found.to_html(output, card=about)
    return Done(found, wrote=output)


@command(verbs.decide, ".json")
def decide(call: Call, *, output: str) -> Done:
    """Save the calibrator with its rule; without a rule nothing is written."""
    found = call()
    if found.reached:
        found.calibrator.save(output)
    broken = found.outcome is not None and any(part.verdict == "broken" for part in found.outcome.parts)
    return Done(found, failed=broken or not found.reached, wrote=output if found.reached else None)


@command(verbs.monitor)
def monitor(call: Call) -> Done:
    """Return the report; an alarm is a failure."""
    found = call()
    return Done(found, failed=found.alarm)


def _to_onnx(calibrator: Any, model: Any = None, tensor: str | None = None, path: str = "") -> Any:
    """Write ONNX.

    Parameters
    ----------
    tensor : str, optional
        Output of the model that holds the scores.
    """
    return verbs.load(calibrator).to_onnx(path, model=model, tensor=tensor)


@command(_to_onnx, ".onnx")
def export(call: Call, *, output: str) -> Done:
    """Write ONNX."""
    return Done(call(path=output), wrote=output)


def demo(folder: str = "attemper-demo", /) -> int:
    """Run everything on the network that comes with attemper."""
    from attemper.cli.demo import run

    return run(folder)
