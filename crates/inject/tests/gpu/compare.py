"""Compares the histograms of two profiles (`buddy profile --json`): one of a live record, one of the full snapshots that were
written at the same moments. Exits with 1 unless every allocation of the second has equal histograms in the first."""
import json
import sys

live, dumped = (json.load(open(path))["data"] for path in sys.argv[1:3])
names = [allocation["name"] for allocation in live["run"]["allocations"]]
compared = different = 0
for at, allocation in enumerate(dumped["run"]["allocations"]):
    here = live["allocations"][names.index(allocation["name"])]["histograms"]
    there = dumped["allocations"][at]["histograms"]
    for codec in sorted(set(here) & set(there)):
        compared += len(there[codec])
        different += sum(one != other for one, other in zip(here[codec], there[codec], strict=True))
print(f"{compared} histograms compared, {different} differ")
sys.exit(different > 0 or compared == 0)
