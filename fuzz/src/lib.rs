//! What fuzz targets share.

use ahbm_machine::Diagnostic;

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
