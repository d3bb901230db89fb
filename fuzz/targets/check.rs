//! Read, lowered and checked: the first byte chooses the format, the rest is the file. A Chakra trace,
//! binary or JSON, is a sequence of files, each after its length in two bytes.
#![no_main]

use ahbm_formats::{Budget, Document, Limit, Reading, chakra, msccl_xml, mscclpp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((format, bytes)) = bytes.split_first() else { return };
    let budget = Budget::default().with(Limit::Ops, 1 << 12).with(Limit::CheckSteps, 1 << 16);
    let slots = 1 + u32::from(format >> 4);
    let reading = Reading { budget, quirks: format & 4 != 0, slots, orders: 3, ..Reading::default() };
    let document = match format % 4 {
        0 => msccl_xml::read(bytes, "fuzz.xml", &budget).map(Document::Msccl),
        1 => {
            let options = mscclpp::ReadOptions { budget, quirks: reading.quirks };
            mscclpp::read(bytes, "fuzz.json", &options).map(Document::Mscclpp).map_err(|finding| vec![finding])
        }
        form => {
            let ending = if form == 2 { "et" } else { "json" };
            let files = ahbm_fuzz::pieces(bytes);
            let names: Vec<String> = (0..files.len()).map(|rank| format!("fuzz.{rank}.{ending}")).collect();
            let files: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(files).collect();
            let options = chakra::ReadOptions { budget, ..chakra::ReadOptions::default() };
            chakra::parse("fuzz", &files, &options).and_then(|trace| Document::of_trace(trace, &budget))
        }
    };
    match document {
        Err(findings) => ahbm_fuzz::told(&findings),
        Ok(document) => {
            let verdict = document.check(&reading);
            ahbm_fuzz::told(&verdict.findings);
            assert_eq!(verdict, document.check(&reading), "a check is the same every time");
        }
    }
});
