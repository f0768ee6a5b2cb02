"""Break the source in one place after another and see whether the tests notice.

    python benchmarks/mutations.py [CHECKOUT] [--results FILE] [--only ID,ID] [--quick] [--wider] [--again] [--list]
        [--baseline]

Breaks of the kernels, readers, maps and methods stand in mutations.json beside this file. For each: find `old`
(in `file` if it is there, else in the one file under src/ that has it exactly once), replace it by `new`, run `tests`,
put the file back, write the outcome to the results file at once. Run again, it goes on after the last outcome;
`--again` repeats those asked for. One process at a time.

Outcomes: caught, survived, timeout, not found, ambiguous, tests not found, error (pytest could not run).
`--list`: show where each is aimed; after a refactor, `old` and `new` of those that are not found follow the code.
`--quick`: run the tests of the quick tier alone, those of `make test`.
`--wider`: what survives is run once more against the folders in `wider` (600 s).
`--baseline`: run all tests of the entries without any break, once; they must pass, or "caught" means nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TIMEOUT, WIDER_TIMEOUT = 180, 600


def aim(entry: dict[str, Any], checkout: Path) -> tuple[Path | None, str]:
    """Find the file to break; None and why if there is none."""
    told = checkout / entry["file"]
    if told.is_file():
        count = told.read_text(encoding="utf-8").count(entry["old"])
        if count == 1:
            return told, ""
        if count > 1:
            return None, f"ambiguous: {count} times in {entry['file']}"
    hits = {p: p.read_text(encoding="utf-8").count(entry["old"]) for p in sorted((checkout / "src").rglob("*.py"))}
    hits = {p: n for p, n in hits.items() if n}
    if not hits:
        return None, "not found"
    if len(hits) > 1 or max(hits.values()) > 1:
        return None, "ambiguous: " + ", ".join(f"{n}× in {p.relative_to(checkout)}" for p, n in hits.items())
    return next(iter(hits)), ""


def resolve(tests: list[str], checkout: Path) -> tuple[list[str], list[str]]:
    """Return tests that are there, and those that are not; one that moved is found if its name still fits."""
    found, missing = [], []
    for test in tests:
        path, *node = test.split("::")
        if not (checkout / path).exists():
            same = list((checkout / "tests").rglob(Path(path).name))
            if len(same) != 1:
                missing.append(test)
                continue
            path = str(same[0].relative_to(checkout))
        found.append("::".join([path, *node]))
    return found, missing


def run(
    pytest: list[str], checkout: Path, tests: list[str], timeout: float, stop: bool = True, keep: str = ""
) -> tuple[str, str, float]:
    """Run tests; return the outcome, the first failure and the seconds it took."""
    env = {**os.environ, "CI": "1", "PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*pytest, *(["-x"] if stop else []), *(["-k", keep] if keep else []), *tests]
    begun = time.monotonic()
    child = subprocess.Popen(
        command,
        cwd=checkout,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        out, _ = child.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(child.pid, signal.SIGKILL)  # what was started here, and its children
        child.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return "timeout", f"no end after {timeout:.0f} s", time.monotonic() - begun
        raise
    took = time.monotonic() - begun
    first = next((line for line in out.splitlines() if re.match(r"(FAILED|ERROR) ", line)), "")
    if child.returncode in (0, 5):  # 5: none of the tests is in this tier
        return "survived", "", took
    if child.returncode == 1:  # 2 is a file of tests that cannot be collected: look at it by hand
        return "caught", first[:300], took
    return "error", f"exit {child.returncode}: {first or out[-300:]}", took


def put_back(pending: Path) -> None:
    """Undo a break that an earlier run was killed in."""
    if pending.exists():
        left = json.loads(pending.read_text(encoding="utf-8"))
        Path(left["path"]).write_bytes(left["text"].encode())
        print(f"put back {left['path']}, which a run that was killed had left broken")
        pending.unlink()


def broken(entry: dict[str, Any], checkout: Path, pytest: list[str], pending: Path, wider: bool) -> dict[str, Any]:
    """Break one place, run its tests, put the place back."""
    path, why = aim(entry, checkout)
    if path is None:
        return {"outcome": why.split(":")[0], "first_failure": why}
    tests, missing = resolve(entry["tests"], checkout)
    if not tests:
        return {"outcome": "tests not found", "first_failure": ", ".join(missing)}
    original, times = path.read_bytes(), path.stat()
    text = original.decode("utf-8").replace(entry["old"], entry["new"])
    if text.encode() == original:
        return {"outcome": "error", "first_failure": "old and new are the same"}
    compile(text, str(path), "exec")
    where = {"file": str(path.relative_to(checkout)), "tests": tests}
    if missing:
        where["tests_missing"] = missing
    pending.write_text(json.dumps({"path": str(path), "text": original.decode("utf-8")}), encoding="utf-8")
    try:
        path.write_bytes(text.encode())
        outcome, first, took = run(pytest, checkout, tests, TIMEOUT, keep=entry.get("keep", ""))
        found = {**where, "outcome": outcome, "first_failure": first, "seconds": round(took, 1)}
        folders = resolve(entry.get("wider", []), checkout)[0]
        if outcome == "survived" and wider and folders:
            outcome, first, took = run(pytest, checkout, folders, WIDER_TIMEOUT, keep=entry.get("wider_keep", ""))
            found |= {
                "wider": folders,
                "wider_outcome": outcome,
                "wider_first_failure": first,
                "wider_seconds": round(took, 1),
            }
        return found
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        pending.unlink(missing_ok=True)


def main() -> int:
    """Run what the options say; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--mutations", type=Path, default=HERE / "mutations.json")
    parser.add_argument("--results", type=Path, default=Path("mutation-results.json"))
    parser.add_argument("--only", default="")
    parser.add_argument("--python", default=sys.executable)
    for flag in ("--quick", "--wider", "--again", "--list", "--baseline"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file is put back and the tests are ended
    checkout = args.checkout.resolve()
    tier = "not slow" if args.quick else "slow or not slow"
    pytest = [args.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", tier]
    results_file = args.results
    pending = results_file.with_suffix(".pending")
    put_back(pending)
    entries = json.loads(args.mutations.read_text(encoding="utf-8"))
    only = {name for name in args.only.split(",") if name}
    entries = [e for e in entries if not only or e["id"] in only]
    if args.list:
        for e in entries:
            path, why = aim(e, checkout)
            missing = resolve(e["tests"], checkout)[1]
            print(f"{e['id']}  {why or path.relative_to(checkout)}" + (f"  no tests {missing}" if missing else ""))
        return 0
    # Once for all runs: they must not write bytecode of broken files, which may look as old as the whole ones.
    subprocess.run([args.python, "-m", "compileall", "-q", str(checkout / "src")], check=False)
    if args.baseline:
        clean = True
        for keep in sorted({e.get("keep", "") for e in entries}):
            tests = sorted({t for e in entries if e.get("keep", "") == keep for t in resolve(e["tests"], checkout)[0]})
            outcome, first, took = run(pytest, checkout, tests, 3600, stop=False, keep=keep)
            print({"survived": "clean"}.get(outcome, outcome), keep, first, f"{took:.0f} s")
            clean &= outcome == "survived"
        return 0 if clean else 1
    results = json.loads(results_file.read_text(encoding="utf-8")) if results_file.exists() else {}
    for e in entries:
        done = results.get(e["id"])
        over = done and done["outcome"] in ("caught", "survived", "timeout") and not args.again
        if over and not (args.wider and done["outcome"] == "survived" and "wider" in e and "wider_outcome" not in done):
            continue
        found = broken(e, checkout, pytest, pending, args.wider)
        results[e["id"]] = {"idea": e["idea"], **found}
        new = results_file.with_suffix(".new")
        new.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
        new.replace(results_file)
        wide = f"; wider: {found['wider_outcome']}" if "wider_outcome" in found else ""
        print(
            f"{e['id']} {found['outcome']}{wide}  {found.get('seconds', 0)} s  {found['first_failure'][:110]}",
            flush=True,
        )
    mine = [results[e["id"]] for e in entries]
    caught = sum("caught" in (r["outcome"], r.get("wider_outcome")) for r in mine)
    print(f"\n{caught} of {len(mine)} caught")
    for e, r in zip(entries, mine):
        if "caught" not in (r["outcome"], r.get("wider_outcome")):
            print(f"  {e['id']} {r['outcome']}: {e['idea']}")
    return 0 if caught == len(mine) else 1


if __name__ == "__main__":
    sys.exit(main())
