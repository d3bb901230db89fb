//! MSCCL-IR: any bytes are a plan or typed findings; a plan that is written again is the same program.
#![no_main]

use ahbm_formats::msccl_xml;
use ahbm_plan::{Budget, Limit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let budget = Budget::default().with(Limit::Ops, 1 << 14);
    match msccl_xml::read(bytes, "fuzz.xml", &budget) {
        Err(findings) => ahbm_fuzz::told(&findings),
        Ok(plan) => {
            let written = msccl_xml::write(&plan);
            let again = msccl_xml::read(written.as_bytes(), "fuzz.xml", &budget).expect("what was written is a plan");
            let program = |plan: &ahbm_plan::Plan| plan.lower_for_check(2, &budget).map(|l| l.program.hash()).ok();
            assert_eq!(program(&again), program(&plan), "{written}");
        }
    }
});
