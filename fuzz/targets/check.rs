//! Read, lowered and checked; the input is that of [`ahbm_fuzz::document`].
#![no_main]

use ahbm_check::check_plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((check, document)) = ahbm_fuzz::document(bytes) else { return };
    match document {
        Err(findings) => ahbm_fuzz::told(&findings),
        Ok(document) => {
            let verdict = check_plan(&document.algorithm, &check);
            ahbm_fuzz::told(&verdict.findings);
            assert_eq!(verdict, check_plan(&document.algorithm, &check), "a check is the same every time");
        }
    }
});
