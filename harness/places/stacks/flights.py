"""What PyTorch's flight recorder has of the collectives of a process, where its trainer wrote that down as JSON.

The recorder is on by default since PyTorch 2.13, and has gloo's collectives, too, whose `state` it leaves at
`scheduled`: `retired` says that one is over. A trainer writes `torch._C._distributed_c10d._dump_fr_trace_json()` to the
file that TORCH_FR_DUMP_TEMP_FILE names, with its rank behind. A dump that PyTorch makes by itself is a pickle, which is
never read: it may run anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diloco_chaos.harness.record.storage.files import bytes_of

_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_MOST_BYTES = 8 << 20
_MOST_SHOWN = 5
_PICKLE = ("a pickle, which is not read: have the trainer write torch._C._distributed_c10d._dump_fr_trace_json() there")


def flights(environment: Mapping[str, str]) -> list[str]:
    """Return in lines the collectives of a process that were not over, of the file that its environment names; empty
    where there is none."""
    prefix = next((environment[name] for name in _VARIABLES if environment.get(name)), "")
    path = Path(prefix + environment.get("RANK", "0"))
    if not prefix or not path.is_file():
        return []
    try:
        content = bytes_of(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        return [f"flight recorder {path.name}: not told: {error}"]
    if not content.lstrip().startswith(b"{"):
        return [f"flight recorder {path.name}: {_PICKLE}"]
    try:
        return [f"flight recorder {path.name}: {line}" for line in _told(json.loads(content))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [f"flight recorder {path.name}: what it has can't be understood"]


def _told(dump: dict[str, Any]) -> list[str]:
    entries = dump["entries"]
    open_ones = [entry for entry in entries if not entry.get("retired")]
    lines = [f"{len(entries)} collectives, {len(open_ones)} of them not over"]
    return lines + [f"{entry['profiling_name']}, number {entry['collective_seq_id']} of group "
                    f"{' '.join(map(str, entry['process_group']))}, sizes {entry['input_sizes']}"
                    for entry in open_ones[:_MOST_SHOWN]]
