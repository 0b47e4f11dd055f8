"""One line of the tape: an event as JSON, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from diloco_chaos.harness.base.errors import all_printable
from diloco_chaos.harness.record.tape.events import KINDS, AnyEvent, Custom, Event

_ENCODER = msgspec.json.Encoder(enc_hook=list)  # parts of a merge that are kept in columns
_DECODER: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_BACKSLASH, _DELETE = b"\\", b"\x7f"


def line(event: Event) -> bytes:
    """The event as one JSON line; NaN and infinity become null, as JSON wants it."""
    if isinstance(event, Custom):
        content = {"event": event.kind, "t": event.t, "node": event.node, "inc": event.inc, **event.fields}
        return json.dumps(_finite(content), separators=(",", ":")).encode() + b"\n"
    try:
        return _ENCODER.encode(event) + b"\n"
    except UnicodeEncodeError:  # a name that is no Unicode: slower, and nothing is lost
        return json.dumps(_finite(msgspec.to_builtins(event, enc_hook=list)), separators=(",", ":")).encode() + b"\n"


def parse(text: bytes) -> Event:
    """The event on one line. What a terminal would obey, or not show, is replaced by what it is: the tape may come from
    anybody.

    Raises:
        ValueError: the line is not a whole event; the message says what is missing or wrong.
    """
    event = _plain(text) if is_plain(text) else _other(text)
    if not event.whole:
        raise ValueError("not an event: t, node or inc is missing or wrong")
    return event


def parse_all(text: bytes) -> list[AnyEvent]:
    """The events on many lines at once.

    Raises:
        ValueError: one of them may not be a whole event, or needs `parse`.
    """
    if not is_plain(text):
        raise ValueError("some text has to be made printable")
    return _DECODER.decode_lines(text)


def is_plain(text: bytes) -> bool:
    """Return whether nothing in it has to be made printable: JSON escapes everything else that would have to."""
    return text.isascii() and _BACKSLASH not in text and _DELETE not in text


def _plain(text: bytes) -> Event:
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return _other(text)


def _other(text: bytes) -> Event:
    """An event that only its trainer knows, or whose text is not plain; or the reason why it is none."""
    try:
        raw = json.loads(text.decode("utf-8", "replace"))  # NaN, a name that is no Unicode: some writers leave them
    except RecursionError as error:
        raise ValueError(f"not an event: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("event"), str):
        raise ValueError("not an event: it has no name")
    shown: dict[str, Any] = all_printable(raw)
    if (kind := KINDS.get(shown["event"])) is None:
        return _custom(shown)
    _must_have(kind, shown)
    try:
        return msgspec.convert(shown, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a {kind.name()}: {error}") from error


def _custom(raw: dict[str, Any]) -> Custom:
    t, node, inc, name = (raw.pop(key, None) for key in ("t", "node", "inc", "event"))
    whole = (isinstance(t, int | float) and isinstance(node, str) and isinstance(inc, int)
             and not isinstance(t, bool) and not isinstance(inc, bool))
    if not whole:
        raise ValueError("not an event: t, node or inc is missing or wrong")
    return msgspec.convert({"event": "custom", "t": t, "node": node, "inc": inc, "kind": name, "fields": raw}, Custom)


def _must_have(kind: type[Event], raw: Mapping[str, Any]) -> None:
    """Raise ValueError with every field that is missing."""
    required = kind.__struct_encode_fields__[:len(kind.__struct_fields__) - len(kind.__struct_defaults__)]
    if missing := sorted(set(required) - raw.keys()):
        raise ValueError(f"a {kind.name()} without {', '.join(missing)}")


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(item) for item in content] if isinstance(content, list | tuple) else content
