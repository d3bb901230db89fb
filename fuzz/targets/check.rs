//! Read, lowered and checked; the input is that of [`ahbm_fuzz::document`].
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((reading, document)) = ahbm_fuzz::document(bytes) else { return };
    match document {
        Err(findings) => ahbm_fuzz::told(&findings),
        Ok(document) => {
            let verdict = document.check(&reading);
            ahbm_fuzz::told(&verdict.findings);
            assert_eq!(verdict, document.check(&reading), "a check is the same every time");
        }
    }
});
