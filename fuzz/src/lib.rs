//! What fuzz targets share.

use ahbm_check::PlanCheck;
use ahbm_findings::Diagnostic;
use ahbm_formats::{Document, chakra, msccl_xml, mscclpp};
use ahbm_plan::{Budget, Limit};

/// Every finding has a stable code and says something.
pub fn told(findings: &[Diagnostic]) {
    for finding in findings {
        assert!(finding.code.starts_with("AHBM-") && !finding.message.is_empty(), "{finding:?}");
    }
}

/// Byte strings, each after its length in two little-endian bytes; the last one may be cut short.
pub fn pieces(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let (piece, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// A document and how to check it: the first byte chooses the format and the options, the rest is the file. A Chakra
/// trace, binary or JSON, is a sequence of files, as in [`pieces`].
pub fn document(bytes: &[u8]) -> Option<(PlanCheck, Result<Document, Vec<Diagnostic>>)> {
    let (format, bytes) = bytes.split_first()?;
    let budget = Budget::default().with(Limit::Ops, 1 << 12).with(Limit::CheckSteps, 1 << 16);
    let slots = 1 + u32::from(format >> 4);
    let check = PlanCheck { budget, slots, orders: 3, ..PlanCheck::default() };
    let name = ["fuzz.xml", "fuzz.json", "fuzz.0.et", "fuzz.0.json"][usize::from(format % 4)];
    let files = if format % 4 < 2 { vec![bytes] } else { pieces(bytes) };
    Some((check, read(name, &files, &budget, format & 4 != 0)))
}

/// The files as what `name`, that of the first, says they are.
pub fn read(name: &str, files: &[&[u8]], budget: &Budget, quirks: bool) -> Result<Document, Vec<Diagnostic>> {
    let budget = *budget;
    match name.split_once('.') {
        Some((_, "xml")) => msccl_xml::read(files[0], name, &budget).map(Document::msccl),
        Some((_, "json")) => {
            let options = mscclpp::ReadOptions { budget, quirks };
            mscclpp::read(files[0], name, &options).map(Document::mscclpp).map_err(|finding| vec![finding])
        }
        _ => {
            let names: Vec<String> = (0..files.len()).map(|rank| name.replace(".0.", &format!(".{rank}."))).collect();
            let files: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(files.iter().copied()).collect();
            let options = chakra::ReadOptions { budget, ..chakra::ReadOptions::default() };
            chakra::parse("fuzz", &files, &options).and_then(|trace| Document::of_trace(trace, &budget))
        }
    }
}
