//! Converted to every format, or refused; the input is that of [`ahbm_fuzz::document`].
#![no_main]

use ahbm_check::as_blocks;
use ahbm_formats::chakra::PlanOptions;
use ahbm_formats::convert::render;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Some((check, Ok(document))) = ahbm_fuzz::document(bytes) else { return };
    let plan = match as_blocks(&document.algorithm, &check) {
        Err(findings) => return ahbm_fuzz::told(&findings),
        Ok(plan) => plan,
    };
    for name in ["fuzz.xml", "fuzz.json", "fuzz.et"] {
        match render(&plan, Path::new(name), check.slots, &check.budget, &PlanOptions::default()) {
            Err(findings) => ahbm_fuzz::told(&findings),
            Ok(files) => {
                let files: Vec<&[u8]> = files.iter().map(|file| &*file.bytes).collect();
                let again = ahbm_fuzz::read(&name.replace(".et", ".0.et"), &files, &check.budget, false);
                assert!(again.is_ok(), "{name} cannot be read again: {:?}", again.err());
            }
        }
    }
});
