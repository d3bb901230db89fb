"""Two algorithms compared and explained: which one is faster, where it loses time, and how far the bound is."""

import ahbm

machine, size = "npu_torus_4x4", "256K"
reports = [
    ahbm.run("all_reduce", name, machine, size=size, check=True)
    for name in ("ring_allreduce", "lrab_hierarchical_allreduce")
]
quick, slow = sorted(reports, key=lambda report: report.latency_ns)
print(f"{quick.algorithm} takes {quick.latency_ns / 1000:,.1f} us, {slow.algorithm} {slow.latency_ns / 1000:,.1f} us")
print(f"the bound is {quick.bound_ns / 1000:,.1f} us: {quick.limited_by}")

for report in (quick, slow):
    explanation = report.explain()
    worst = max(explanation.steps, key=lambda step: step.ps)
    category, ps = next(iter(explanation.by_category.items()))
    print(f"{report.algorithm}: {100 * ps / explanation.latency_ps:.0f} % of the critical path is {category};")
    print(f"  the longest line is {worst.origin}, {worst.what}")
