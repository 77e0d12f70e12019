"""Writes fencekit_keys.json: payloads and the keys that Python derives.

    python3 fencekit_keys.py > fencekit_keys.json

A payload travels as JSON text, whose numbers are integers, so that Go can read
it without loss.
"""

import hashlib
import json
import sys


def key(namespace, payload):
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{namespace}:{hashlib.sha256(text.encode()).hexdigest()}"


every_control = "".join(chr(c) for c in range(0x20))
every_ascii = "".join(chr(c) for c in range(0x20, 0x80))

CASES = {
    "empty": {},
    "strings": {"order": "A-1", "empty": "", "space": " "},
    "integers": {"zero": 0, "one": 1, "minus": -7, "max64": 2**63 - 1, "min64": -(2**63), "umax": 2**64 - 1},
    "above 2^53": {"a": 2**53 + 1, "b": 2**53},
    "big": {"n": 10**40 + 1, "m": -(10**40)},
    "4300 digits": {"n": 10**4299},
    "bool and null": {"t": True, "f": False, "n": None},
    "one is not true": {"t": 1},
    "lists": {"empty": [], "mixed": [1, "1", None, [True, []], {"b": 1, "a": 2}]},
    "nested": {"b": {"z": 1, "a": {"y": {}, "B": 2}}, "a": 0},
    "order of names": {k: i for i, k in enumerate(["a", "B", "_", "1", "10", "2", "", "a b", "~", "\x7f", "\x00", '"', "\\"])},
    "controls": {"s": every_control},
    "ascii": {"s": every_ascii},
    "del": {"s": "\x7f"},
    "latin": {"s": "\x80\x9f\xa0äß"},
    "bmp": {"s": "\u2028\u2029\ufeff\uffff\ud7ff\ue000日本"},
    "astral": {"s": "😀\U00010000\U0010ffff"},
    "html": {"s": "</script>&<>'"},
    "escapes": {"s": '\\"\b\f\n\r\t/\\u0041'},
    "deep": {"d": json.loads("[" * 200 + "]" * 200)},
}

CASES["a namespace"] = {"a": 1}

lines = [
    json.dumps({"name": name, "payload": payload, "key": key("a:b{c}", payload)}) for name, payload in CASES.items()
]
sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
