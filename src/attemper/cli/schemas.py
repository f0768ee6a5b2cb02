"""JSON Schemas of what commands print with `--json`; `attemper schema COMMAND` prints them.

One word for one thing: ``n_samples`` and ``n_classes`` are sizes, ``method`` is a method of `attemper methods`, or
"none" for the classifier without a map, ``map`` is the path of a map, ``output`` the path of what was written. An
estimate has ``value``, ``low`` and ``high``, and ``note`` where it has no interval.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
ANY: Schema = {}


def either(schema: Schema) -> Schema:
    """Return the schema of something that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema, size: int | None = None) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": schema} | ({} if size is None else {"minItems": size, "maxItems": size})


def mapped(schema: Schema, about: str = "") -> Schema:
    """Return the schema of an object with any keys."""
    return {"type": "object", "additionalProperties": schema} | ({"description": about} if about else {})


def record(optional: Any = None, more: Any = False, **required: Schema) -> Schema:
    """Return the schema of an object: what is always there, and what may be there."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": more,
    }


def described(schema: Schema, text: str) -> Schema:
    """Add a description."""
    return {**schema, "description": text}


METHOD = described(TEXT, 'a method of `attemper methods`, or "none": the classifier without a map')
ESTIMATE = record(
    value=described(either(NUMBER), "null where it is not finite: see non_finite"),
    low=either(NUMBER),
    high=either(NUMBER),
    optional={
        "chance": described(NUMBER, "mean of the value under perfect calibration"),
        "p_value": described(SHARE, "share of draws of perfect calibration that reach the value"),
        "note": described(TEXT, "why there is no interval"),
    },
)
METRICS = mapped(ESTIMATE, "by the names of attemper.metrics.evaluate")
FAIL_IF = listed(
    record(
        condition=TEXT,
        method=either(METHOD),
        figure=TEXT,
        part={"enum": ["value", "low", "high", "chance", "p_value"]},
        bound=NUMBER,
        value=either(NUMBER),
        passed=described(either(BOOLEAN), "null: there is no such figure, for this reason"),
        reason=either(TEXT),
    )
)
# What every command may add.
EVERYWHERE = {
    "clusters": described(
        record(n_clusters=COUNT, correlation=either(NUMBER), design_effect=NUMBER, effective=NUMBER),
        "with --clusters: how many cases there are, and how many independent samples they are worth, by the errors",
    ),
    "columns": mapped(listed(TEXT), "columns of tables that were taken as logits, by file"),
    "non_finite": mapped(
        {"enum": ["infinity", "-infinity", "nan"]},
        "numbers that JSON cannot hold: they are null, and listed here by their places (JSON pointers, RFC 6901)",
    ),
}
SIZES = {"n_samples": COUNT, "n_classes": COUNT}
ROW = record(
    method=METHOD,
    temperature=either(NUMBER),
    seconds=NUMBER,
    changed=described(SHARE, "of the predictions that differ from the classifier's"),
    cv=described(
        either(record(nll=either(NUMBER), above=either(NUMBER), standard_error=either(NUMBER))),
        "on held-out validation samples; above: the recommended method's",
    ),
    metrics=either(METRICS),
    referral_area=either(ESTIMATE),
    above_best=either(ESTIMATE),
    notes=listed(TEXT),
    failure=described(either(TEXT), "why there are no figures"),
)
GROUP = {"anyOf": [TEXT, {"type": "integer"}]}
GROUP_TEST = record(p_value=either(SHARE), statistic=either(NUMBER), note=TEXT)
GROUP_ROW = record(
    group=GROUP,
    n=NUMBER,
    n_clusters=either(COUNT),
    effective=described(NUMBER, "independent samples that the accuracy is as uncertain as"),
    confidence=SHARE,
    metrics=mapped(ESTIMATE, "by the names of attemper.metrics.by_group"),
)
WORST = {
    **ESTIMATE,
    "properties": {**ESTIMATE["properties"], "group": GROUP, "possible": listed(GROUP)},
    "required": [*ESTIMATE["required"], "group", "possible"],
}
BY_GROUP = {
    "groups": listed(GROUP_ROW),
    "all": GROUP_ROW,
    "worst": mapped(either(WORST), "by metric; the ends are of the worst true value of all groups"),
    "alike": described(GROUP_TEST, "at the same confidence, accuracy does not depend on the group"),
    "accuracy_alike": GROUP_TEST,
    "confidence_level": SHARE,
    "simultaneous": BOOLEAN,
}
METRICS_BY_GROUP = {"by_group": described(listed(record(method=METHOD, **BY_GROUP)), "with --groups")}
COMPARISON = {
    "rows": listed(ROW),
    "recommended": METHOD,
    "reason": TEXT,
    "selected_by": {"enum": ["first choice", "cross-validation", "no errors"]},
    "n_folds": COUNT,
    "confidence_set": either(listed(METHOD)),
}
# What `summary` of a calibrator returns: the parameters that it found, which differ from method to method.
FIT = {
    "method": METHOD,
    **SIZES,
    "nll": either(NUMBER),
    "converged": BOOLEAN,
    "message": TEXT,
}
OUTCOME = {
    "name": TEXT,
    "n": NUMBER,
    "referred": NUMBER,
    "caught": NUMBER,
    "missed": NUMBER,
    "decided": NUMBER,
    "errors": NUMBER,
    "miss_rate": either(ESTIMATE),
    "referred_share": either(ESTIMATE),
}
POLICY = {
    "threshold": either({"anyOf": [NUMBER, listed(either(NUMBER))]}),
    "rationale": TEXT,
    **SIZES,
    "guarantee": either(
        record(
            bound={"anyOf": [NUMBER, listed(NUMBER)]},
            confidence_level=SHARE,
            miss_rate_of={"enum": ["decided", "all"]},
            by_class=either(TEXT),
            max_per_cluster=described(
                either(COUNT),
                "for a sample drawn at random where of each cluster at most so many count; null without clusters",
            ),
        )
    ),
    "reached": BOOLEAN,
    "notes": listed(TEXT),
    "classes": either(listed(ANY)),
    "cost_refer": either(NUMBER),
    "cost_miss": either({"anyOf": [NUMBER, listed(NUMBER)]}),
    "predict": {"enum": ["most_probable", "least_cost"]},
    "n_clusters": either(COUNT),
}
TESTED = record(
    **OUTCOME,
    miss_rate_of={"enum": ["decided", "all"]},
    by_class=listed(record(**OUTCOME)),
    by_predicted=listed(record(**OUTCOME)),
    cost=either(ESTIMATE),
    n_clusters=either(COUNT),
    optional={
        "by_group": described(listed(record(**OUTCOME)), "with --groups; intervals hold for all groups together")
    },
)
SET_POLICY = {
    "score": {"enum": ["lac", "aps", "raps"]},
    "coverage": SHARE,
    "thresholds": listed(described(either(NUMBER), "null: too few samples, so every class is in the set")),
    "n_units": listed(COUNT),
    **SIZES,
    "by": either({"enum": ["class", "group"]}),
    "groups": either(listed(ANY)),
    "unit": {"enum": ["sample", "cluster"]},
    "confidence_level": either(SHARE),
    "penalty": NUMBER,
    "k_reg": COUNT,
    "randomized": BOOLEAN,
    "allow_empty": BOOLEAN,
    "max_size": COUNT,
    "notes": listed(TEXT),
    "classes": either(listed(TEXT)),
    "map_sha256": either(TEXT),
}
SET_SHARE = {
    "name": TEXT,
    "n": NUMBER,
    "coverage": either(ESTIMATE),
    "mean_size": either(NUMBER),
    "decided": NUMBER,
    "listed": NUMBER,
    "referred": NUMBER,
}
# Of labels that do not exclude each other.
LABEL = record(
    label=TEXT,
    n_known=NUMBER,
    prevalence=either(SHARE),
    **{name: {"anyOf": [ESTIMATE, {"type": "null"}]} for name in ("nll", "brier", "ece")},
)
FILES = listed(record(name=TEXT, bytes=either(COUNT), sha256=either(TEXT), optional={"role": TEXT}))
OF_GROUPS = {"n_groups": described(COUNT, "of sketches by group")}
SKETCH = {**SIZES, "bytes": COUNT, "output": TEXT}
DRIFT = {
    "test": {"enum": ["drift test", "exchangeability test", "grouped test", "unlabelled monitor"]},
    "alarm": BOOLEAN,
    "alarm_at": described(either(COUNT), "of the test of all samples; null with --unlabelled and no --reference"),
    "p_value": either(SHARE),
    "e_value": either(NUMBER),
    "n_samples": described(COUNT, "clusters, with --clusters"),
    "new_samples": COUNT,
    "n_rows": COUNT,
    "alpha": either(SHARE),
    "message": TEXT,
    "state": either(TEXT),
}
OF_DRIFT = {
    "tolerance": NUMBER,
    "requested_tolerance": NUMBER,
    "tolerated_points": either(listed(NUMBER, 2)),
    "factor": either(NUMBER),
    "temperature": either(NUMBER),
    "since": either(COUNT),
    "n_reference": COUNT,
}
UNLABELLED = {"accuracy": ESTIMATE, "miss_rate": ESTIMATE, "decided": either(SHARE)}
WATCHED = {
    **OF_DRIFT,
    **{name: described(schema, "rests on the map being calibrated") for name, schema in UNLABELLED.items()},
    "accuracy_if_label_shift": SHARE,
    "priors": listed(record(**{"class": ANY}, before=SHARE, value=SHARE, low=SHARE, high=SHARE)),
    "groups": listed(
        record(
            group={"type": ["string", "integer"]},
            n_samples=COUNT,
            optional={
                **{name: DRIFT[name] for name in ("alarm", "alarm_at", "p_value", "alpha", "n_rows")},
                **OF_DRIFT,
                **UNLABELLED,
            },
        )
    ),
    "fail_if": FAIL_IF,
}
INSPECTED = {"file": TEXT, "sha256": TEXT, "bytes": COUNT, "kind": TEXT}
CHECKED = {
    "files": listed(TEXT),
    "input": {"enum": ["logits", "probs"]},
    "looks_like": {"enum": ["logits", "probabilities", "log-probabilities", "shares", "percentages", "counts"]},
    **SIZES,
    "dtype": either(TEXT),
    "numbers": record(
        low=either(NUMBER),
        high=either(NUMBER),
        sums=either(listed(NUMBER, 2)),
        n_nan=COUNT,
        n_infinite=COUNT,
        n_masked=COUNT,
        n_zero=COUNT,
        constant_columns=listed(COUNT),
    ),
    "repeated_rows": record(n=COUNT, exact=BOOLEAN),
    "labels": either(
        record(
            low=either(NUMBER),
            high=either(NUMBER),
            n_outside=COUNT,
            counts=listed(COUNT),
            predicted=listed(COUNT),
            without_samples=listed(COUNT),
        )
    ),
    "accuracy": either(SHARE),
    "findings": listed(record(level={"enum": ["note", "warning", "error"]}, code=TEXT, message=TEXT)),
    "next": described(either(TEXT), "the command to run next"),
    "exit_code": {"enum": [0, 1, 2]},
}
METHODS = record(
    **{"class": TEXT},
    title=TEXT,
    does=TEXT,
    parameters=ANY,
    needs={"enum": ["rows", "a sketch"]},
    knows_noise=BOOLEAN,
    keeps_arg_max=BOOLEAN,
    package=TEXT,
)

SHARES = listed(SHARE)
SCHEMAS: dict[str, Schema] = {
    "adapt": record(
        map=TEXT,
        files=listed(TEXT),
        output=TEXT,
        n_classes=COUNT,
        classes=either(listed(ANY)),
        estimated=described(BOOLEAN, "from unlabelled data; false: as specified"),
        old=described(SHARES, "shares of the classes under which MAP is right"),
        new=described(SHARES, "shares of the classes of the adapted map"),
        low=either(SHARES),
        high=either(SHARES),
        most_likely=described(either(SHARES), "without shrinkage"),
        bbse=either(SHARES),
        rlls=either(SHARES),
        p_value=described(either(SHARE), "of label shift; null: not tested"),
        unexplained=described(either(SHARE), "share of the predictions that no mix of the classes explains"),
        concentration=described(either(NUMBER), "how many samples the old shares count as; null: infinitely many"),
        gap=either(NUMBER),
        n_samples=either(NUMBER),
    ),
    "apply": record(n_samples=COUNT, output=TEXT),
    "check": record(**CHECKED),
    "compare": record(**COMPARISON, optional={**METRICS_BY_GROUP, "fail_if": FAIL_IF}),
    "demo": record(**COMPARISON, folder=TEXT, files=listed(TEXT)),
    "drift": record(**DRIFT, optional=WATCHED),
    "evaluate": record(
        **SIZES,
        confidence_level=SHARE,
        rows=listed(
            record(method=METHOD, map=either(TEXT), metrics=METRICS, optional={"labels": listed(LABEL)}),
        ),
        optional={**METRICS_BY_GROUP, "fail_if": FAIL_IF},
    ),
    "export": record(
        output=TEXT,
        how={"enum": ["alone", "folded", "inserted"]},
        logits=TEXT,
        tensor=TEXT,
        output_kind={"enum": ["probs", "log_probs", "logits"]},
        largest_difference=either(NUMBER),
        not_run=either(TEXT),
        notes=listed(TEXT),
        external_files=listed(TEXT),
        optional={"sets": described(TEXT, "with --sets: the output of truth values")},
    ),
    "fit": record(
        **FIT,
        n_shards=COUNT,
        nll_none=described(either(NUMBER), "validation NLL of the classifier without a map"),
        log_t_error=either(NUMBER),
        objective_gap=either(NUMBER),
        gradient_norm=either(NUMBER),
        output=TEXT,
        optional={
            "temperature": either(NUMBER),
            "groups": described({"type": "object"}, "with --groups: columns of the table of groups, and their spread"),
            "nll_groups": described(NUMBER, "with --groups: validation NLL of the maps of the groups"),
        },
        more=True,
    ),
    "inspect": record(**INSPECTED, more=True),
    "merge": record(**SKETCH, optional=OF_GROUPS),
    "methods": mapped(METHODS),
    "plan": record(
        plans=listed(
            record(
                question={"enum": ["temperature", "accuracy", "nll", "brier", "ece", "certificate", "coverage"]},
                goal=TEXT,
                n_samples=COUNT,
                n_range=either(listed(COUNT, 2)),
                n_clusters=either(COUNT),
                target=NUMBER,
                confidence_level=SHARE,
                curve=listed(record(n_samples=COUNT, more=NUMBER)),
                notes=listed(TEXT),
            )
        ),
        chosen=described(either(record(n_samples=COUNT, output=TEXT)), "the samples of --choose"),
        optional={"fail_if": FAIL_IF},
    ),
    "refer": record(
        method=METHOD,
        n_fitted=COUNT,
        n_chosen=COUNT,
        output=either(TEXT),
        map=either(TEXT),
        optional={
            "policy": record(**POLICY),
            "test": TESTED,
            "labels": described(
                listed(record(label=TEXT, policy=record(**POLICY), test=either(TESTED))),
                "instead of policy and test, for labels that do not exclude each other",
            ),
        },
    ),
    "report": record(
        output=TEXT,
        bytes=COUNT,
        title=TEXT,
        n_val=COUNT,
        n_test=COUNT,
        n_classes=COUNT,
        confidence_level=SHARE,
        recommended=METHOD,
        reason=TEXT,
        n_folds=COUNT,
        confidence_set=either(listed(METHOD)),
        rows=listed({**ROW, "required": [name for name in ROW["required"] if name != "seconds"]}),
        verdict=listed(listed(TEXT, 2)),
        provenance=record(files=FILES, versions=mapped(TEXT), more=True),
        optional=METRICS_BY_GROUP,
    ),
    "schema": described({"type": "object"}, "a JSON Schema"),
    "sets": record(
        method=METHOD,
        n_fitted=described(COUNT, "validation samples that fitted the map"),
        n_calibrated=described(COUNT, "validation samples that the thresholds are taken from"),
        policy=record(**SET_POLICY),
        rule=TEXT,
        promise=TEXT,
        coverage_range=described(listed(listed(SHARE, 2)), "5 % and 95 % points of the coverage, for each threshold"),
        test=record(
            **SET_SHARE,
            **{by: listed(record(**SET_SHARE)) for by in ("by_class", "by_group", "by_size")},
            n_clusters=either(COUNT),
        ),
        output=either(TEXT),
        map=either(TEXT),
        sets_output=either(TEXT),
    ),
    "sketch": record(**SKETCH, n_shards=COUNT, optional=OF_GROUPS),
}


def schema_of(command: str) -> Schema:
    """Return the JSON Schema of what a command prints with `--json`."""
    schema = {"$schema": DRAFT, "title": f"attemper {command} --json", **SCHEMAS[command]}
    if "properties" in schema:
        schema["properties"] = {**schema["properties"], **EVERYWHERE}
    return schema
