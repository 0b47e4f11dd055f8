"""Bugs for `trainer.py` that take two faults, the second one during the recovery from the first or while the first
lasts: what is replaced, and by what."""

from __future__ import annotations

from pathlib import Path

BUGS: dict[str, list[tuple[str, str]]] = {
    "a newcomer whose donor dies gets no other one": [
        ("                other.donor = None\n", "")],
    "a newcomer that dies while it is brought up to date is waited for": [
        ("        self.coming = [other for other in self.coming if other is not member]\n", ""),
        (" and now - self.opened < GIVE_S + TAKE_S + PATIENCE_S:", ":")],
    "a newcomer counts the round before it has the weights, and the hub dies": [
        ('self.made, self.weights = message["made"], message["weights"]\n',
         'self.made, staged = message["made"], message["weights"]\n'),
        ('                if message["what"] == "round":\n',
         '                if message["what"] == "go" and staged:\n'
         '                    self.weights, staged = staged, 0\n'
         '                if message["what"] == "round":\n'),
        ("        while line := file.readline():\n", "        staged = 0\n        while line := file.readline():\n")],
    "after the hub's death the first that comes leads, not the furthest": [
        ("max(self.coming, key=lambda member: member.made)", "self.coming[0]")],
    "who could not save and dies waits for its own file": [
        ("        try:\n            made, weights, digest",
         '        while self.file.with_suffix(".new").exists():\n            time.sleep(0.05)\n'
         "        try:\n            made, weights, digest")],
}


def planted(source: str, bug: str) -> str:
    """Return the trainer with this bug.

    Raises:
        ValueError: the trainer has changed, and the bug has no place in it any more.
    """
    for old, new in BUGS[bug]:
        if source.count(old) != 1:
            raise ValueError(f"{old!r} is {source.count(old)} times in the trainer")
        source = source.replace(old, new)
    return source


def plant(bug: str, folder: Path) -> Path:
    """Write the scenario and the trainer with this bug into a folder, and return the scenario's path. `bug`: empty for
    the trainer as it is."""
    here = Path(__file__).parent
    source = (here / "trainer.py").read_text()
    (folder / "trainer.py").write_text(planted(source, bug) if bug else source)
    scenario = folder / "searched.yaml"
    scenario.write_text((here / "searched.yaml").read_text())
    return scenario
