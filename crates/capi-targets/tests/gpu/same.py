"""Compares what `same` printed with the profile: same.py PROFILE PRINTED."""
import json
import sys

profile = json.load(open(sys.argv[1]))["data"]
lines = [line.split(" ") for line in open(sys.argv[2]).read().splitlines()]
expected = {info["name"]: found["overflowing"][-1] for info, found in zip(profile["run"]["allocations"], profile["allocations"])}
wrong = 0
for name, different, overflowing, device, row in lines:
    good = different == "0" and int(overflowing) == expected.pop(name) and device == row
    wrong += not good
    print(f"{'ok' if good else 'DIFFERS':8} {name}: {different} bytes differ, {overflowing} entries overflow, {device} of {row} bytes")
sys.exit(f"missing: {sorted(expected)}" if expected else wrong > 0)
