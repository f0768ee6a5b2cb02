"""Files that other services read: each has the form that its service expects, and all agree with pyproject.toml."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from pathspec import GitIgnoreSpec

from attemper import __version__
from attemper.cli.commands import cli

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="an sdist has no .github")

# Forms that check-jsonschema brings, and the files that have them.
FORMS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.readthedocs": ".readthedocs.yaml",
    "vendor.citation-file-format": "CITATION.cff",
}


def run(program, *arguments):
    return subprocess.run([BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True)


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def steps(path, kind):
    return [step[kind] for job in read(path)["jobs"].values() for step in job.get("steps", []) if kind in step]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_has_the_form_that_its_service_expects(form):
    files = sorted(ROOT.glob(FORMS[form]))
    assert files
    done = run("check-jsonschema", "--builtin-schema", form, *files)
    assert done.returncode == 0, done.stdout


def test_a_file_without_that_form_is_found(tmp_path):
    text = (ROOT / "CITATION.cff").read_text().replace("authors:\n  - name: attemper contributors\n", "")
    (tmp_path / "CITATION.cff").write_text(text)
    done = run("check-jsonschema", "--builtin-schema", "vendor.citation-file-format", tmp_path / "CITATION.cff")
    assert done.returncode == 1
    assert "'authors' is a required property" in done.stdout


def test_the_metadata_are_valid():
    done = run("validate-pyproject", "pyproject.toml")
    assert done.returncode == 0, done.stdout
    assert PROJECT["authors"] == [{"name": "attemper contributors"}]
    for target in PYPROJECT["tool"]["hatch"]["build"]["targets"].values():
        assert target["core-metadata-version"] == "2.4"  # the publishing action of release.yml knows no newer one


def test_workflows_are_safe():
    done = run("zizmor", "--offline", "--quiet", "--no-progress", ".")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_pins_limits_and_few_permissions(path):
    workflow = read(path)
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["group"]
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        assert "timeout-minutes" in job or "uses" in job, name
    for line in re.findall(r"uses: (.*)", path.read_text()):
        assert line.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def action(step):
    return step.get("uses", "").partition("@")[0]


def test_who_may_sign_and_publish_runs_nothing_else():
    release = read(".github/workflows/release.yml")["jobs"]
    signing = {name for name, job in release.items() if {"id-token", "attestations"} & set(job["permissions"])}
    assert signing == {"publish"}
    publish = release["publish"]
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    assert publish["environment"]["name"] == "pypi"
    download = "actions/download-artifact"
    published = [download, download, "actions/attest-build-provenance", "pypa/gh-action-pypi-publish"]
    assert [action(step) for step in publish["steps"]] == published
    assert set(publish["needs"]) == {"tests", "build", "sbom", "check"}
    writing = {name for name, job in release.items() if job["permissions"].get("contents") == "write"}
    assert writing == {"github"}
    assert "publish" in release["github"]["needs"]


def test_what_is_tested_and_published_is_what_was_built():
    release = read(".github/workflows/release.yml")["jobs"]
    assert [step["run"] for step in release["build"]["steps"] if "run" in step][1:] == ["make dist"]
    for name in ("check", "publish", "github"):
        downloads = [step["with"] for step in release[name]["steps"] if action(step) == "actions/download-artifact"]
        assert downloads[0]["artifact-ids"].startswith("${{ needs.build.outputs.distributions }}"), name
        assert all(told["merge-multiple"] and "name" not in told for told in downloads), name
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^dist: (\S+) .*\n((?:\t.*\n)+)", makefile, flags=re.M)
    assert (recipe[1], recipe[2].strip()) == (".venv-build/stamp", ".venv-build/bin/python -m hatchling build")
    (install,) = re.findall(r"\.venv-build/bin/python -m pip .*install (.*)", makefile)
    assert install == "--quiet --constraint constraints.txt hatchling"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_step_of_a_workflow_keeps_the_token_or_reads_a_cache(path):
    for job in read(path)["jobs"].values():
        for step in job.get("steps", []):
            told = step.get("with", {})
            assert action(step) != "actions/checkout" or told["persist-credentials"] is False
            assert action(step) != "actions/cache"
            assert "cache" not in told


def test_an_action_has_one_version_everywhere():
    used = {line for path in WORKFLOWS for line in re.findall(r"uses: ([^.].*)", path.read_text())}
    actions = [line.partition("@")[0] for line in used]
    assert len(actions) == len(set(actions))


def test_scripts_of_workflows_are_shell_and_name_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for path in WORKFLOWS:
        for script in steps(path, "run"):
            assert "${{" not in script  # values come through the environment, where they cannot become code
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
            for line in script.splitlines():
                words = shlex.split(line)
                assert words[0] != "make" or set(words[1:]) <= targets
                assert not words[0].startswith(".ci/") or (ROOT / words[0]).is_file()


def test_the_tests_run_on_three_pythons_and_two_systems():
    matrix = read(".github/workflows/tests.yml")["jobs"]["quick"]["strategy"]["matrix"]
    promised = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    assert len(matrix["python"]) == 3
    assert {min(promised), max(promised)} <= set(matrix["python"]) <= promised
    assert [re.match(r"\w+", system)[0] for system in matrix["system"]] == ["ubuntu", "macos"]


def test_every_address_is_of_one_repository():
    home = PROJECT["urls"]["Homepage"]
    organisation, name = home.removeprefix("https://github.com/").split("/")
    site = f"https://{organisation}.github.io/{name}/"
    assert PROJECT["urls"]["Documentation"] == site
    named = {path for path in map(Path, CONTRIBUTING_LIST) if (ROOT / path).is_file()}
    assert len(named) == len(CONTRIBUTING_LIST)
    shown = [path for path in ROOT.rglob("*") if path.suffix in {".md", ".yml", ".yaml", ".toml", ".cff"}]
    holding = set()
    for path in shown:
        inside = path.relative_to(ROOT)
        if not _is_ours(inside):
            continue
        text = path.read_text(encoding="utf-8")
        if f"{organisation}/{name}" in text or site in text:
            holding.add(inside)
        assert not re.search(rf"github\.com/(?!{organisation}/)[\w-]+/{name}\b", text), inside
    assert holding == named, "CONTRIBUTING.md lists the files that name the address of the repository"


def test_links_of_issue_templates_go_to_pages_that_exist():
    # mkdocs.yml has tags of Python, which a safe reader refuses.
    assert "\nuse_directory_urls: false " in (ROOT / "mkdocs.yml").read_text()
    home, site = PROJECT["urls"]["Homepage"], PROJECT["urls"]["Documentation"]
    for link in read(".github/ISSUE_TEMPLATE/config.yml")["contact_links"]:
        if link["url"] != f"{home}/security/advisories/new":  # GitHub's own form, which SECURITY.md names too
            page = link["url"].removeprefix(site).partition("#")[0]
            assert (ROOT / "docs" / page.replace(".html", ".md")).is_file(), link["url"]


def test_commands_that_these_files_name_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    templates = sorted((ROOT / ".github").rglob("*.md")) + sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    for path in [
        *templates,
        *(ROOT / name for name in ("SECURITY.md", ".readthedocs.yaml", ".pre-commit-config.yaml")),
    ]:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"`make ([\w-]+)`", text)) <= targets, path
        assert set(re.findall(r"`attemper (\w+)", text)) <= set(cli.commands), path
    tested = [line for test in read("recipe/recipe.yaml")["tests"] for line in test.get("script", [])]
    assert [line.split()[1] for line in tested] == ["--version", "demo"]
    assert "demo" in cli.commands
    hooks = [hook["entry"].split() for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    for program, *options in hooks:
        assert (ROOT / options[0]).is_file() if program == "python" else (BIN / program).is_file(), program


def test_read_the_docs_builds_the_site_as_make_docs_does():
    (command,) = read(".readthedocs.yaml")["build"]["jobs"]["install"]
    extras = re.search(r"\[([\w,]+)\]", command)[1]
    assert (
        f'--editable ".[{extras}]"' in (ROOT / "Makefile").read_text().split(".venv/docs.stamp: ")[1].split("\n\n")[0]
    )
    assert "constraints.txt" in command


def test_programs_name_no_folder_outside_the_repository():
    for folder in ("benchmarks", "experiments", "examples", "lint"):
        for path in (ROOT / folder).rglob("*.py"):
            found = re.search(r"""["'\s`]\.\./[\w./]+""", path.read_text(encoding="utf-8"))
            assert not found, f"{path.relative_to(ROOT)}: {found[0].strip()}. Use a placeholder such as FOLDER."


IGNORED = GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text().splitlines())
LISTED = re.search(r"The address of the repository is in (.*?)\.\n", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
CONTRIBUTING_LIST = re.findall(r"`([^`]+)`", LISTED[1]) if LISTED else []


def _is_ours(inside):
    return not IGNORED.match_file(inside.as_posix()) and ".git" not in inside.parts[:1]


def test_the_version_is_the_same_everywhere():
    assert read("CITATION.cff")["version"] == __version__
    assert read("recipe/recipe.yaml")["context"]["version"] == __version__
    assert f"attemper-{__version__}-py3-none-any.whl" in (ROOT / "SECURITY.md").read_text()


def test_the_recipe_needs_what_the_wheel_needs():
    recipe = read("recipe/recipe.yaml")
    python, *needed = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    assert {Requirement(line.replace(" ", "")) for line in needed} == set(map(Requirement, PROJECT["dependencies"]))
    (backend,) = PYPROJECT["build-system"]["requires"]
    assert backend.replace(">=", " >=") in recipe["requirements"]["host"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == PROJECT["scripts"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_hooks_use_the_versions_that_are_tested():
    pinned = set((ROOT / "constraints.txt").read_text().splitlines())
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    needed = {line for hook in hooks for line in hook.get("additional_dependencies", [])}
    assert len(needed) >= 3
    assert needed <= pinned
    for hook in hooks:
        assert hook["language"] == "python"
        assert "files" not in hook or re.compile(hook["files"])


def test_the_dockerfile_is_clean_and_ends_in_the_command_of_a_user():
    done = run("hadolint", "--no-color", "--failure-threshold", "info", "Dockerfile")
    assert done.returncode == 0, done.stdout
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert all(re.match(r"FROM python:3\.\d+\.\d+-slim", line) for line in lines if line.startswith("FROM"))
    last = dict(line.split(" ", 1) for line in lines if line.startswith(("USER ", "WORKDIR ", "ENTRYPOINT ")))
    assert last["WORKDIR"] == "/data"
    for page in ("Dockerfile", "CONTRIBUTING.md", "docs/install.md"):  # a command sees the files of its own folder
        assert re.findall(r"--volume \S+", (ROOT / page).read_text()) == ['--volume "$PWD:/data"'], page
    assert int(last["USER"]) > 0
    assert json.loads(last["ENTRYPOINT"]) == ["attemper"]
    for extras in re.findall(r"\[([\w,]+)\]", "\n".join(line for line in lines if "pip " in line)):
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


@pytest.mark.slow
def test_what_the_image_is_built_from_is_enough_for_the_wheel(tmp_path):
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    everything, *sources, caches = [line for line in lines if not line.startswith("#")]
    assert (everything, caches) == ("*", "**/__pycache__")
    for source in (ROOT / line.removeprefix("!") for line in sources):
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / source.name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheels"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert list((tmp_path / "wheels").glob("attemper-*.whl"))
