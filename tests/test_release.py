"""What a release says about itself: one version, and files that agree with it."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import tallytree as tt

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_the_same_everywhere():
    version = tt.__version__
    assert metadata.version("tallytree") == version
    assert "version" in PROJECT["project"]["dynamic"]  # read from _version.py
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == version
    headed = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headed is not None
    assert headed[1] == version


def test_every_python_that_is_promised_gets_a_wheel():
    classifiers = PROJECT["project"]["classifiers"]
    promised = {line.rpartition(":: 3.")[2] for line in classifiers if ":: 3." in line}
    built = set(re.findall(r"cp3(\d+)-", PROJECT["tool"]["cibuildwheel"]["build"]))
    assert promised == built == {"11", "12", "13", "14"}
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert PROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"


@pytest.mark.parametrize(
    "name",
    ["LICENSE", "CITATION.cff", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", ".github/pull_request_template.md",
     ".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/question.yml"],
)  # fmt: skip
def test_the_files_that_strangers_look_for_are_there(name):
    assert len((ROOT / name).read_text(encoding="utf-8")) > 100


def test_links_of_the_project_page():
    links = PROJECT["project"]["urls"]
    assert {"Homepage", "Documentation", "Source", "Changelog", "Issues"} <= set(links)
    assert all(link.startswith("https://") for link in links.values())
