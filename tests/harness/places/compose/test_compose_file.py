"""What docker-compose.yml says is what runs get; what can't be taken over is an error, not a silence."""

import docker.types
import pytest

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose import compose_file

VERSION = "1.41"
pytestmark = pytest.mark.usefixtures("docker_compose")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in ("DILOCO_CHAOS_IMAGE", "DILOCO_CHAOS_TOXIPROXY_IMAGE", "MINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def write(tmp_path):
    """write(text of service x) -> the file."""
    def make(text):
        path = tmp_path / "docker-compose.yml"
        path.write_text("services:\n  x:\n" + "".join(f"    {line}\n" for line in text.splitlines()))
        return path
    return make


@pytest.mark.parametrize("name", ["syncer", "learner-1", "learner-4", "toxiproxy"])
def test_a_service_of_the_real_file_is_locked_down_and_limited(name):
    stated = compose_file.service(compose_file.find(), name)
    assert stated["init"] is True
    assert stated["read_only"] is True
    assert stated["cap_drop"] == ["ALL"]
    assert stated["security_opt"] == ["no-new-privileges:true"]
    assert stated["pids_limit"] == 128
    assert (stated["cpu_quota"], stated["cpu_period"]) == (100_000, 100_000)
    assert stated["mem_limit"] == stated["memswap_limit"]
    assert not {"command", "ports", "networks", "volumes", "environment", "restart", "build"} & set(stated)


def test_every_node_of_the_real_file_gets_the_same():
    found = compose_file.find()
    assert compose_file.service(found, "syncer") == compose_file.service(found, "learner-1")
    assert compose_file.service(found, "syncer")["tmpfs"] == {"/tmp": ""}


def test_images_have_defaults_and_come_from_the_environment(monkeypatch):
    found = compose_file.find()
    assert compose_file.service(found, "syncer")["image"] == "diloco-chaos:local"
    assert compose_file.service(found, "toxiproxy")["image"] == "ghcr.io/shopify/toxiproxy:2.12.0"
    monkeypatch.setenv("DILOCO_CHAOS_IMAGE", "mine:1")
    monkeypatch.setenv("DILOCO_CHAOS_TOXIPROXY_IMAGE", "")
    assert compose_file.service(found, "learner-1")["image"] == "mine:1"
    assert compose_file.service(found, "toxiproxy")["image"] == "ghcr.io/shopify/toxiproxy:2.12.0"


def test_two_dollars_are_one_and_a_variable_may_stand_inside_a_list(write, monkeypatch):
    monkeypatch.setenv("MINE", "NET_ADMIN")
    stated = compose_file.service(write('image: "a$$b${MISSING}"\ncap_add: ["${MINE}"]'), "x")
    assert stated == {"image": "a$b", "cap_add": ["NET_ADMIN"]}


def test_a_key_that_cant_be_taken_over_is_refused_by_name(write):
    path = write("image: a\nprivileged: true\npid: host")
    with pytest.raises(ClusterError, match=r"services\.x: a run can't take over pid, privileged; remove it") as refused:
        compose_file.service(path, "x")
    assert str(path) in str(refused.value)


def test_a_service_that_is_not_there_is_named(write):
    with pytest.raises(ClusterError, match="there is no service learner-9"):
        compose_file.service(write("image: a"), "learner-9")


@pytest.mark.parametrize("text", ["", "- a list", "just words", "services:", "services: [x]", "services: {x: }"])
def test_a_file_without_services_is_an_error_that_names_it(tmp_path, text):
    path = tmp_path / "docker-compose.yml"
    path.write_text(text)
    with pytest.raises(ClusterError, match=str(path)):
        compose_file.service(path, "x")


@pytest.mark.parametrize("content", [b"services: {x: [", b"services:\n\tx: 1\n", b"\xff\xfe\x00", b"a: *nothing",
                                     b"services: {x: {image: a, image: b}}"])
def test_broken_yaml_is_an_error_that_names_the_file(tmp_path, content):
    path = tmp_path / "docker-compose.yml"
    path.write_bytes(content)
    with pytest.raises(ClusterError, match=rf"{path}: can't be read"):
        compose_file.service(path, "x")


def test_a_file_that_is_gone_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ClusterError, match="can't be read"):
        compose_file.service(tmp_path / "docker-compose.yml", "x")


@pytest.mark.parametrize(("cpus", "quota"), [("1.0", 100_000), ("0.5", 50_000), ('"0.25"', 25_000), ("2", 200_000)])
def test_processors_become_a_quota_that_can_be_changed_later(write, cpus, quota):
    stated = compose_file.service(write(f"cpus: {cpus}"), "x")
    assert stated == {"cpu_period": 100_000, "cpu_quota": quota}


def test_processors_that_are_no_number_are_an_error_that_names_the_file(write):
    path = write("cpus: many")
    with pytest.raises(ClusterError, match=str(path)):
        compose_file.service(path, "x")


def test_memory_means_no_swap(write):
    stated = docker.types.HostConfig(version=VERSION, **compose_file.service(write("mem_limit: 64m"), "x"))
    assert (stated["Memory"], stated["MemorySwap"]) == (64 << 20, 64 << 20)


@pytest.mark.parametrize(("tmpfs", "mounts"), [
    ("/tmp", {"/tmp": ""}), ("[/tmp, /run]", {"/tmp": "", "/run": ""}),
    ('"/tmp:size=64m,mode=1777"', {"/tmp": "size=64m,mode=1777"})])
def test_a_tmpfs_keeps_its_options(write, tmpfs, mounts):
    stated = compose_file.service(write(f"tmpfs: {tmpfs}"), "x")
    assert docker.types.HostConfig(version=VERSION, **stated)["Tmpfs"] == mounts


@pytest.mark.parametrize("sysctls", ["{net.ipv4.tcp_syn_retries: 1}", '["net.ipv4.tcp_syn_retries=1"]'])
def test_kernel_parameters_are_taken_over_in_both_forms(write, sysctls):
    stated = compose_file.service(write(f"sysctls: {sysctls}"), "x")
    assert docker.types.HostConfig(version=VERSION, **stated)["Sysctls"] == {"net.ipv4.tcp_syn_retries": "1"}


def test_a_kernel_parameter_without_a_value_is_named(write):
    with pytest.raises(ClusterError, match=r"services.x.sysctls: net.ipv4.tcp_syn_retries: no value: write"):
        compose_file.service(write("sysctls: [net.ipv4.tcp_syn_retries]"), "x")


def test_limits_of_a_process_are_taken_over_or_refused(write):
    try:
        stated = compose_file.service(write("ulimits: {nofile: 1024}"), "x")
    except ClusterError:
        return
    limits = docker.types.HostConfig(version=VERSION, **stated)["Ulimits"]
    assert [(one["Name"], one["Soft"], one["Hard"]) for one in limits] == [("nofile", 1024, 1024)]


def test_a_number_that_comes_from_a_variable_is_a_number(write):
    assert compose_file.service(write("pids_limit: ${MINE:-64}"), "x") == {"pids_limit": 64}


@pytest.mark.parametrize(("image", "means"), [
    ("$MINE", "mine:1"), ("${MINE}", "mine:1"), ("${MINE:?say which}", "mine:1"), ("${MINE:+other}", "other"),
    ("${NONE-${MINE}}", "mine:1"), ("${NONE:-a}-b", "a-b"), ("$$MINE", "$MINE"), ("$$$$", "$$")])
def test_a_variable_may_be_written_in_every_way(write, monkeypatch, image, means):
    monkeypatch.setenv("MINE", "mine:1")
    assert compose_file.service(write(f'image: "{image}"'), "x") == {"image": means}


def test_a_variable_that_must_be_set_is_named_where_it_is_not(write):
    path = write('image: "${MINE:?say which image}"')
    with pytest.raises(ClusterError, match=rf"^{path}: can't be read: .*MINE is missing a value: say which image$"):
        compose_file.service(path, "x")


def test_a_service_may_extend_another_and_take_variables_from_files(write, tmp_path, monkeypatch):
    (tmp_path / "mine.env").write_text("A=of the file\nB=p$$q\n")
    (tmp_path / ".env").write_text("MINE=mine:1\n")
    (tmp_path / "base.yml").write_text("services: {base: {image: $MINE, user: '7', environment: {C: c}}}")
    path = write("extends: {file: base.yml, service: base}\nenv_file: mine.env\nenvironment: {A: a, D: , E: }")
    monkeypatch.setenv("D", "ours")
    assert compose_file.service(path, "x", foreign=True) == {
        "image": "mine:1", "user": "7", "environment": {"A": "a", "B": "p$q", "C": "c", "D": "ours"}}


def test_a_file_of_variables_that_is_gone_is_named(write, tmp_path):
    with pytest.raises(ClusterError, match=f"can't be read: env file {tmp_path}/gone.env not found"):
        compose_file.service(write("image: a\nenv_file: gone.env"), "x")


def test_folders_may_be_written_in_the_long_way(write, tmp_path):
    (tmp_path / "code").mkdir()
    path = write("volumes:\n- {type: bind, source: ./code, target: /code, read_only: true}\n"
                 "- {type: bind, source: /tmp, target: /all, bind: {create_host_path: false}}")
    assert compose_file.service(path, "x", foreign=True) == {"mounts": [
        docker.types.Mount("/code", str(tmp_path / "code"), type="bind", read_only=True),
        docker.types.Mount("/all", "/tmp", type="bind", read_only=False)]}


def test_of_somebody_elses_file_the_environment_and_folders_of_this_machine_are_taken_over(write, tmp_path):
    (tmp_path / "code").mkdir()
    path = write('image: mine\ncommand: ignored\nenvironment: {A: 1, B: ""}\nvolumes: ["./code:/code:ro", '
                 '"/tmp:/all"]\nworking_dir: /code')
    stated = compose_file.service(path, "x", foreign=True)
    assert stated == {"image": "mine", "working_dir": "/code", "environment": {"A": "1", "B": ""}, "mounts": [
        docker.types.Mount("/code", str(tmp_path / "code"), type="bind", read_only=True),
        docker.types.Mount("/all", "/tmp", type="bind", read_only=False)]}
    assert compose_file.service(path, "x") == {"image": "mine", "working_dir": "/code"}, "ours are a run's own"


@pytest.mark.parametrize(("line", "why"), [
    ('volumes: ["data:/data"]', "'data:/data' is no folder of this machine: write ./SOURCE:TARGET or"),
    ('volumes: ["./gone:/data"]', "there is no .*/gone"),
    ("volumes: [/data]", "':/data' is no folder of this machine"),
    ("volumes: [{type: tmpfs, target: /data}]", "':/data' is no folder of this machine"),
    ('volumes: ["/tmp:/data:z"]', "'/tmp:/data' is no folder .* without other options"),
    ("volumes: [{type: bind, source: /tmp, target: /data, bind: {propagation: shared}}]", "without other options"),
    ("gpus: all", "a run can't take over gpus")])
def test_what_cant_be_taken_over_of_it_is_an_error(write, line, why):
    with pytest.raises(ClusterError, match=why):
        compose_file.service(write(f"image: mine\n{line}"), "x", foreign=True)
