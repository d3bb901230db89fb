//! Topology files: any text is a machine or typed findings.
#![no_main]

use ahbm_machine::Machine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(findings) = Machine::from_yaml(text, "fuzz.yaml", &[]) {
        ahbm_fuzz::told(&findings);
    }
});
