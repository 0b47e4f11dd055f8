"""Options that are settings of a model."""

import pytest
from typer.main import get_command

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.commands.options import asked_of, options_of
from diloco_chaos.chaos.fleet.sweeps.failed_share import FailedShare
from diloco_chaos.chaos.fleet.sweeps.grace import Grace
from diloco_chaos.chaos.fleet.sweeps.wan import Wan
from diloco_chaos.harness.fleet.bandwidth import Exchange
from diloco_chaos.harness.fleet.fleet import Fleet

GROUP = get_command(application()).commands["fleet"]
MODELS = {"bandwidth": Exchange, "wan": Wan, "failed-share": FailedShare, "grace": Grace}


@pytest.mark.parametrize("name", ["fleet", *MODELS])
def test_help_shows_what_a_setting_is_where_nobody_gives_it(name):
    command, model = GROUP.commands.get(name, GROUP), MODELS.get(name, Fleet)
    options = [option for option in command.params if option.name in model.model_fields]
    shown = [option for option in options if isinstance(option.show_default, str)]
    told_in_words = {option.name for option in options} - {option.name for option in shown}
    assert told_in_words <= {"mode", "spares", "process", "trace", "trace_nodes"}
    typed = [word for option in shown for word in (option.opts[0], option.show_default)]
    context = command.make_context(name, typed, resilient_parsing=True)
    assert len(options_of(context, model)) == len(shown)
    assert asked_of(context, model) == model()
