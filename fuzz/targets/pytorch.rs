//! Traces of PyTorch, plain or gzip, of one rank: any bytes are a job or typed findings.
#![no_main]

use ahbm_formats::pytorch::{Kind, Options, parse};
use ahbm_plan::{Budget, Limit};
use ahbm_workload::Groups;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let budget = Budget::default().with(Limit::InflatedBytes, 1 << 20).with(Limit::Ranks, 64);
    for kind in [Kind::Kineto, Kind::Host, Kind::Flight] {
        for symmetric in [false, true] {
            let options = Options { budget, symmetric, host_gaps: symmetric, ..Options::default() };
            if let Err(findings) = parse("fuzz", kind, &[("fuzz.0.json", bytes)], &options, Groups::default()) {
                ahbm_fuzz::told(&findings);
            }
        }
    }
});
