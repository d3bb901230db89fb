//! MSCCL++ execution plans, with and without quirks: any bytes are a plan or a typed finding.
#![no_main]

use ahbm_formats::mscclpp::{ReadOptions, read};
use ahbm_plan::execution::Launch;
use ahbm_plan::{Budget, Limit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let budget = Budget::default().with(Limit::Ops, 1 << 14);
    for quirks in [false, true] {
        match read(bytes, "fuzz.json", &ReadOptions { budget, quirks }) {
            Err(finding) => ahbm_fuzz::told(&[finding]),
            Ok(plan) => match plan.lower_for_check(2, Launch::EVEN, &budget) {
                Err(findings) => ahbm_fuzz::told(&findings),
                // Quirks follow the executor even outside its buffers, which the lints say.
                Ok(lowered) => assert!(quirks || ahbm_program::structure(&lowered.program).is_empty()),
            },
        }
    }
});
