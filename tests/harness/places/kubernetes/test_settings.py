"""The file that says where on which Kubernetes runs are performed."""

from __future__ import annotations

import pytest

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings


def test_an_empty_file_says_what_is_usual(tmp_path):
    (tmp_path / "place.yaml").write_text("")
    assert KubernetesSettings.read(tmp_path / "place.yaml") == KubernetesSettings()


@pytest.mark.parametrize(("text", "why"), [
    ("imagge: x", "imagge: Extra inputs are not permitted. Known are patience, start_within, commands, context"),
    ("namespace: Not_One", "namespace: Value error, 'Not_One' is no name of Kubernetes"),
    ("cpu: lots", "cpu: String should match pattern"),
    ("patience: 5", "patience: Input should be greater than or equal to 30"),
    ("commands: {node_power_loss: x}", "node_power_loss and node_power_return are needed both"),
    ("commands: {reboot: x}", "commands.reboot"),
    ("commands: {restart_control_plane: \"sh -c 'x\"}", "can't be taken apart: No closing quotation"),
    ("[1, 2]", "the file: Input should be a valid dictionary"),
    ("{", "can't be read"), ("[" * 5000, "can't be read: too many brackets"),
    ("#" * (1 << 20) + "!", "can't be read: more than 1 MB")])
def test_what_is_wrong_in_it_is_told_with_its_place(tmp_path, text, why):
    (tmp_path / "place.yaml").write_text(text)
    with pytest.raises(ClusterError) as error:
        KubernetesSettings.read(tmp_path / "place.yaml")
    assert str(error.value).startswith(str(tmp_path / "place.yaml"))
    assert why in str(error.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ClusterError, match="No such file"):
        KubernetesSettings.read(tmp_path / "none.yaml")


def test_the_environment_may_name_it(tmp_path, monkeypatch):
    (tmp_path / "place.yaml").write_text("context: mine")
    monkeypatch.setenv("DILOCO_CHAOS_KUBERNETES", str(tmp_path / "place.yaml"))
    assert KubernetesSettings.given().context == "mine"
    monkeypatch.delenv("DILOCO_CHAOS_KUBERNETES")
    assert KubernetesSettings.given() == KubernetesSettings()


def test_a_command_is_told_which_machine_is_meant():
    settings = KubernetesSettings(commands={"node_power_loss": "off '{machine} now'", "node_power_return": "on"})
    assert settings.command("node_power_loss", "kn1") == ["off", "kn1 now"]
