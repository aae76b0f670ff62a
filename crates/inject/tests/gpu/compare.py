"""Compares a live record (`buddy watch`) with the profile of full snapshots (`buddy profile --json`).

The snapshots are those written at the same moments. Exits with 1 unless every histogram of every codec
of the profile is equal."""
import json
import sys

live, dumped = (json.load(open(path))["data"] for path in sys.argv[1:3])
names = [allocation["name"] for allocation in live["run"]["allocations"]]
compared = different = 0
others = []
for at, allocation in enumerate(dumped["run"]["allocations"]):
    sizes = [snapshot[names.index(allocation["name"])]["histograms"] for snapshot in live["sizes"]]
    for codec, histograms in dumped["allocations"][at]["histograms"].items():
        compared += len(histograms)
        differ = sum(one.get(codec) != other for one, other in zip(sizes, histograms, strict=True))
        different += differ
        others += [codec] * (differ > 0)
print(f"{compared} histograms compared, {different} differ {' '.join(others)}")
sys.exit(different > 0 or compared == 0)
