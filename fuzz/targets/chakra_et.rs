//! Chakra traces of one rank, plain, gzip or (from a brace on) JSON: any bytes are a trace or typed findings; a trace that is written again
//! is the same trace; a trace of a job is a job or typed findings.
#![no_main]

use ahbm_formats::chakra::{ReadOptions, parse, parse_workload};
use ahbm_plan::{Budget, Limit};
use ahbm_workload::{Groups, Linked};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = if bytes.first() == Some(&b'{') { "fuzz.0.json" } else { "fuzz.0.et" };
    let budget = Budget::default().with(Limit::InflatedBytes, 1 << 20);
    for lenient in [false, true] {
        let options = ReadOptions { budget, lenient, ..ReadOptions::default() };
        match parse("fuzz", &[(file, bytes)], &options) {
            Err(findings) => ahbm_fuzz::told(&findings),
            Ok(trace) if !lenient => {
                let job = parse_workload("fuzz", &[(file, bytes)], &options, Groups::default());
                if let Err(findings) = job.and_then(Linked::new) {
                    ahbm_fuzz::told(&findings);
                }
                let written = trace.to_bytes().remove(0);
                let again = parse("fuzz", &[("fuzz.0.et", &written)], &options).expect("what was written is a trace");
                assert_eq!(again.to_bytes()[0], written);
            }
            Ok(trace) => drop(trace.summary()),
        }
    }
});
