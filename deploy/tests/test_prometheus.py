"""The alert rules: the queries parse, and ask for metrics that nodes have."""

from __future__ import annotations

import re
from typing import Any

import promql_parser
import pytest
import yaml

from node import DEPLOY

Rule = dict[str, Any]
DOCS = DEPLOY.parent / "docs"
FILE = yaml.safe_load((DEPLOY / "prometheus/sheaf.rules.yaml").read_text())
RULES: list[Rule] = [r for g in FILE["groups"] for r in g["rules"]]

# docs/metrics.md is written from the nodes' registry by a test of package server.
ROW = re.compile(r"^\| `(sheaf_\w+|go_\w+|process_\w+)` \| (.*?) \|", re.MULTILINE)
METRICS = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in ROW.findall((DOCS / "metrics.md").read_text())}

# What every series has: Prometheus puts them there.
ALWAYS = {"job", "instance"}


def selectors(query: str) -> list[promql_parser.VectorSelector]:
    """The series that a query reads."""
    found: list[promql_parser.VectorSelector] = []

    def visit(expr: object) -> bool:
        if isinstance(expr, promql_parser.VectorSelector):
            found.append(expr)
        return True

    promql_parser.walk(promql_parser.parse(query), visit)
    return found


def faults(query: str) -> list[str]:
    """What a query asks for that nodes don't have."""
    out = []
    for s in selectors(query):
        name = s.name if s.name in METRICS else re.sub(r"_(bucket|sum|count)$", "", s.name or "")
        if s.name != "up" and name not in METRICS:
            out.append(f"no metric {s.name}")
        known = METRICS.get(name, set()) | ALWAYS
        out += [f"{s.name} has no label {m.name}" for m in s.matchers.matchers if m.name not in known]
    return out


@pytest.mark.parametrize("rule", RULES, ids=lambda r: str(r["alert"]))
def test_rule(rule: Rule) -> None:
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"[A-Z]\w+", rule["alert"])
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert selectors(rule["expr"])
    assert faults(rule["expr"]) == []
    for name in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        by = re.findall(r"\bby \((.*?)\)", rule["expr"])
        read = selectors(rule["expr"])[0].name
        kept = set(by[0].replace(" ", "").split(",")) if by else ALWAYS | METRICS.get(read, set())
        assert name in kept


@pytest.mark.parametrize("rule", RULES, ids=lambda r: str(r["alert"]))
def test_runbook(rule: Rule) -> None:
    """Each alert names a section of the operator's page."""
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (DOCS.parent / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}


def test_alerts_have_names_of_their_own() -> None:
    names = [r["alert"] for r in RULES]
    assert len(names) == len(set(names))


def test_faults_are_found() -> None:
    assert faults("sheaf_no_such_metric > 0") == ["no metric sheaf_no_such_metric"]
    assert faults('sheaf_object_calls_total{bucket="b"} > 0') == ["sheaf_object_calls_total has no label bucket"]
    with pytest.raises(ValueError, match="unexpected"):
        selectors("rate(sheaf_object_calls_total[5m)")
