//! Converted to every format, or refused; the input is that of [`ahbm_fuzz::document`].
#![no_main]

use ahbm_formats::chakra::PlanOptions;
use ahbm_formats::convert::render;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Some((reading, Ok(document))) = ahbm_fuzz::document(bytes) else { return };
    let plan = match document.to_plan(&reading) {
        Err(findings) => return ahbm_fuzz::told(&findings),
        Ok(plan) => plan,
    };
    for name in ["fuzz.xml", "fuzz.json", "fuzz.et"] {
        match render(&plan, Path::new(name), &reading, &PlanOptions::default()) {
            Err(findings) => ahbm_fuzz::told(&findings),
            Ok(files) => {
                let files: Vec<&[u8]> = files.iter().map(|file| &*file.bytes).collect();
                let again = ahbm_fuzz::read(&name.replace(".et", ".0.et"), &files, &reading);
                assert!(again.is_ok(), "{name} cannot be read again: {:?}", again.err());
            }
        }
    }
});
