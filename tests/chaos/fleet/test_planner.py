"""`fleet report` writes one page that needs no network."""

import re

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.harness.base.errors import UserError

FEW = ("--chips", "20k", "--learners", "4", "--repair", "1h", "--days", "2", "--replications", "2", "--jobs", "1")


def page(tmp_path, *options):
    file = tmp_path / "plan.html"
    done = CliRunner().invoke(application(), ["fleet", "report", str(file), *FEW, *options], env={"COLUMNS": "80"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.stdout == f"{file}: {done.stdout.split(': ')[1]}"
    return file.read_text()


def words(content):
    """What a person reads of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", content.split("</style>")[1]).split())


def test_the_page_says_what_every_mode_makes_and_draws_it_over_what_can_be_chosen(tmp_path):
    content = page(tmp_path, "--cost-per-chip-hour", "2")
    read = words(content)
    for said in ("Goodput of 20k chips", "decoupled, M = 4", "elastic data parallel", "data parallel",
                 "A point of goodput is worth 3.51 million a year.", "Goodput over the size of the fleet",
                 "Goodput over the number of learners", "Goodput over the time to repair", "Goodput over spares",
                 "Goodput over the checkpoint interval, rigid job (a checkpoint takes 10.0 s)", "What it hangs on",
                 "What spares of a rigid job bring", "each point more costs", "MTBF 1 y of a chip"):
        assert said in read
    assert content.count("<svg") == 5
    assert not re.search(r'(?:src|href)="(?!data:)', content)
    assert "nan" not in read.lower().replace("finance", "")


def test_without_a_price_nothing_costs(tmp_path):
    assert "cost" not in words(page(tmp_path))


def test_what_one_record_can_t_tell_is_said(tmp_path):
    trace = "examples/failures/faults.csv"
    read = words(page(tmp_path, "--trace", trace, "--trace-nodes", "64", "--repair", "2d"))
    low, high = re.search(r"decoupled, M = 4 has between ([\d.]+)% and ([\d.]+)%", read).groups()
    assert 60 < float(low) < float(high) < 100
    assert "Slices fail by a process with a history: lemons" in read


def test_a_page_that_can_t_be_written_is_refused_before_anything_is_simulated(tmp_path):
    for file, why in ((tmp_path / "no" / "plan.html", "there is no folder"), (tmp_path, "it is a folder; name a page")):
        with pytest.raises(UserError, match=why):
            CliRunner().invoke(application(), ["fleet", "report", str(file)], catch_exceptions=False)
