"""A run as JUnit's XML: a test case for the run itself, which has its time, and one for each check, for CI that draws
such files. The form is that which Jenkins and
GitLab read: https://github.com/testmoapp/junitxml."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from diloco_chaos.chaos.report.costs import figures
from diloco_chaos.chaos.report.model import CheckTold, ReportModel, costs_of, phases_of

_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may hold, https://www.w3.org/TR/xml/#charsets."""


def report_junit(model: ReportModel) -> str:
    """A failed check is a failure, one that proves nothing an error: nothing is known of what is tested."""
    whole = model.verdict != "PASSED" and not model.failed and not model.unknown  # no check tells it
    suite = _element("testsuite", name=f"{model.scenario} seed {model.seed}", tests=len(model.checks) + 1,
                     failures=len(model.failed), errors=len(model.unknown) + whole, time=f"{model.took:.3f}")
    properties = SubElement(suite, "properties")
    for name, value in {"verdict": model.verdict, "run": model.run, "seed": model.seed, "plan": model.plan,
                        "trainer": model.trainer, "repeat": model.commands.repeat}.items():
        properties.append(_element("property", name=name, value=value))
    for fault, recovery, phase in phases_of(model):
        properties.append(_element("property", name=f"{fault.id}.{recovery.target}.{phase.name}",
                                   value=f"{phase.seconds:.3f} s"))
    for of, cost in costs_of(model):
        for name, value in figures(cost).items():
            if value is not None:
                properties.append(_element("property", name=".".join(filter(None, [of, name])), value=f"{value:.6g}"))
    run = _element("testcase", classname=model.scenario, name="run", time=f"{model.took:.3f}")
    suite.append(run)
    if whole:
        run.append(_element("error", message=_line(model.why or model.verdict), type=model.verdict))
    suite.extend(_case(model, check) for check in model.checks)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _case(model: ReportModel, check: CheckTold) -> Element:
    case = _element("testcase", classname=model.scenario, name=check.name, time="0.000")
    if check.verdict == "passed":
        return case
    bound = f" (allowed: {check.bound})" if check.bound else ""
    why = (check.causes or check.evidence)[:1]
    kind = "failure" if check.verdict == "failed" else "error"
    problem = _element(kind, message=_line(": ".join([f"{check.measured}{bound}", *why])), type=check.name)
    problem.text = _NO_XML.sub("\ufffd", "\n".join([*check.causes, *check.evidence, model.commands.repeat]))
    case.append(problem)
    return case


def _element(tag: str, **attributes: object) -> Element:
    return Element(tag, {name: _NO_XML.sub("\ufffd", str(value)) for name, value in attributes.items()})


def _line(text: str) -> str:
    return " ".join(text.split())
